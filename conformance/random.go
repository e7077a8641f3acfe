package main

import (
	"fmt"
	"math/rand/v2"
)

// randomFIFO draws a script for the delta queue and runs it. The same seed draws the same script.
func randomFIFO(seed int64) (trace, error) {
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	oneOf := func(words ...string) string { return words[r.IntN(len(words))] }
	config := fields{
		"kind": "real_fifo", "known": "none", "atomic": true, "unlock": true,
		"bookmarks": r.IntN(4) > 0, "transform": oneOf("none", "none", "count", "fail_a"),
	}
	t := trace{
		Name: fmt.Sprintf("rfa-seed-%04d", seed), Kind: "real_fifo", Source: source, Note: "random operations", Seed: &seed,
		Config: config,
	}
	// Which operations are likely differs from script to script, so that some keep the queue short and some long.
	weights := map[string]int{
		"add": 4, "update": 6, "delete": 4, "replace": 1 + r.IntN(3), "resync": r.IntN(2), "bookmark": r.IntN(3),
		"pop": 2 + r.IntN(6), "pop_batch": 2 + r.IntN(6),
	}
	order := []string{"add", "update", "delete", "replace", "resync", "bookmark", "pop", "pop_batch"}
	total := 0
	for _, op := range order {
		total += weights[op]
	}
	version := 0
	next := func() string { version++; return fmt.Sprint(version) }
	object := func() fields {
		rv := next()
		return fields{"ns": oneOf("n1", "n2", ""), "name": oneOf("a", "b", "c", "d"), "rv": rv, "uid": rv}
	}
	f, err := newFIFO(config)
	if err != nil {
		return t, err
	}
	do := func(op string, args fields) error {
		s := step{Op: op, Args: args}
		s.Obs, err = f.step(s)
		t.Steps = append(t.Steps, s)
		return err
	}
	for range 120 + r.IntN(60) {
		at, op := r.IntN(total), ""
		for _, op = range order {
			if at -= weights[op]; at < 0 {
				break
			}
		}
		var args fields
		switch op {
		case "add", "update":
			args = fields{"obj": object()}
		case "delete":
			o := object()
			args = fields{"obj": o}
			if key := o["name"].(string); r.IntN(4) == 0 {
				if o["ns"] != "" {
					key = o["ns"].(string) + "/" + key
				}
				tombstone := fields{"key": key, "obj": o}
				if r.IntN(2) == 0 {
					tombstone["obj"] = nil
				}
				args = fields{"obj": fields{"tombstone": tombstone}}
			}
		case "replace":
			objs := []any{}
			for range r.IntN(5) {
				objs = append(objs, object())
			}
			args = fields{"objs": objs, "rv": next()}
		case "bookmark":
			args = fields{"rv": next()}
		case "pop", "pop_batch":
			args = fields{"apply": false, "fail": r.IntN(10) == 0}
		}
		if err := do(op, args); err != nil {
			return t, err
		}
	}
	// What is left is taken out, so that the script's end shows that nothing was lost.
	for f.(*fifo).waiting > 0 {
		if err := do("pop_batch", fields{"apply": false, "fail": false}); err != nil {
			return t, err
		}
	}
	return t, nil
}
