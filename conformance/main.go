// Command conformance asks the real client-go what the traces of tests/traces say it answered, and draws new traces.
//
//	conformance again FOLDER OUT     every script of FOLDER once more: OUT/recorded and OUT/today, alike in form, for diff
//	conformance random OUT FROM TO   new scripts for the delta queue, from seeds
//
// Only client-go's public names are used, so what is inside its types is in none of the files.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
)

// A driver puts a step to a part of client-go and says what can be seen then.
type driver interface {
	step(step) (fields, error)
}

var drivers = map[string]func(fields) (driver, error){
	"real_fifo":         newFIFO,
	"thread_safe_store": newStore,
	"workqueue":         newQueue,
	"rate_limiter":      newLimiter,
}

// source names the client-go that this program was built with.
var source = func() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			if dep.Path == "k8s.io/client-go" {
				return dep.Path + " " + dep.Version
			}
		}
	}
	return "k8s.io/client-go, version unknown"
}()

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "again":
		return again(args[1], args[2])
	case len(args) == 4 && args[0] == "random":
		from, err1 := strconv.ParseInt(args[2], 10, 64)
		to, err2 := strconv.ParseInt(args[3], 10, 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("seeds are numbers, not %s and %s", args[2], args[3])
		}
		return random(args[1], from, to)
	}
	return fmt.Errorf("usage: conformance again FOLDER OUT | conformance random OUT FROM TO")
}

func again(folder, out string) error {
	traces, err := readTraces(folder, "")
	if err != nil {
		return err
	}
	recorded, today := filepath.Join(out, "recorded"), filepath.Join(out, "today")
	for _, dir := range []string{recorded, today} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	asked, left, steps := 0, 0, 0
	for _, old := range traces {
		now, err := drive(old)
		if err != nil {
			left++
			fmt.Printf("not asked: %s, %v\n", old.Name, err)
			continue
		}
		asked++
		steps += len(now.Steps)
		// Of what was recorded, what can be seen from outside, under today's name of the source.
		old.Source = now.Source
		for i := range old.Steps {
			seen := fields{}
			for name, value := range old.Steps[i].Obs {
				if _, ok := now.Steps[i].Obs[name]; ok || !inside[name] {
					seen[name] = value
				}
			}
			old.Steps[i].Obs = seen
		}
		if err := old.write(recorded); err != nil {
			return err
		}
		if err := now.write(today); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d scripts asked again, %d steps; %d scripts not asked\n", source, asked, steps, left)
	return nil
}

// inside is what is recorded of client-go's insides.
var inside = map[string]bool{"populated": true, "initial": true, "items": true, "dirty": true, "processing": true}

func drive(old trace) (trace, error) {
	now := old
	now.Source, now.Steps = source, nil
	make, ok := drivers[old.Kind]
	if !ok {
		return now, fmt.Errorf("%s is not driven yet", old.Kind)
	}
	d, err := make(old.Config)
	if err != nil {
		return now, err
	}
	for _, s := range old.Steps {
		obs, err := d.step(s)
		if err != nil {
			return now, err
		}
		now.Steps = append(now.Steps, step{s.Op, s.Args, obs})
	}
	return now, nil
}

func random(out string, from, to int64) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	steps := 0
	for seed := from; seed <= to; seed++ {
		t, err := randomFIFO(seed)
		if err != nil {
			return err
		}
		steps += len(t.Steps)
		if err := t.write(out); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d scripts drawn, %d steps\n", source, to-from+1, steps)
	return nil
}
