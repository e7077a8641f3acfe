package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// A fields is a JSON object. Marshalled, its keys are sorted.
type fields = map[string]any

// A trace is one script and what was seen of it; tests/traces/README.md describes the form.
type trace struct {
	Name   string
	Kind   string
	Source string
	Note   string
	Seed   *int64
	Config fields
	Steps  []step
}

type step struct {
	Op   string `json:"op"`
	Args fields `json:"args,omitempty"`
	Obs  fields `json:"obs"`
}

const schema = "informer-oracle/1"

func readTraces(folder, prefix string) ([]trace, error) {
	paths, err := filepath.Glob(filepath.Join(folder, prefix+"*.json"))
	if err != nil {
		return nil, err
	}
	sort.Strings(paths)
	var traces []trace
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var file struct {
			Schema string `json:"schema"`
			Name   string `json:"name"`
			Kind   string `json:"kind"`
			Source string `json:"source"`
			Note   string `json:"note"`
			Seed   *int64 `json:"seed"`
			Config fields `json:"config"`
			Steps  []step `json:"steps"`
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		// Waits in nanoseconds are larger than a float64 keeps apart.
		decoder.UseNumber()
		if err := decoder.Decode(&file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if file.Schema == schema {
			traces = append(traces, trace{file.Name, file.Kind, file.Source, file.Note, file.Seed, file.Config, file.Steps})
		}
	}
	return traces, nil
}

// write puts a trace into its file, one step a line.
func (t trace) write(folder string) error {
	head, err := encode(fields{
		"schema": schema, "name": t.Name, "kind": t.Kind, "source": t.Source, "note": t.Note, "seed": t.Seed, "config": t.Config,
	})
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString(strings.TrimSuffix(head, "}"))
	out.WriteString(`,"steps":[`)
	for i, s := range t.Steps {
		line, err := encode(s)
		if err != nil {
			return err
		}
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n" + line)
	}
	out.WriteString("\n]}\n")
	return os.WriteFile(filepath.Join(folder, t.Name+".json"), []byte(out.String()), 0o644)
}

// number reads a whole number of a trace; zero when there is none.
func number(in any) int64 {
	n, _ := in.(json.Number)
	whole, _ := n.Int64()
	return whole
}

func encode(value any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSpace(out.String()), err
}
