package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

func is(so bool) error {
	if so {
		return nil
	}
	return errors.New("it is not so")
}

// update: nanoseconds for one object to be replaced by its next generation, in random order, its key built inside.
func update() float64 {
	const updates = 400_000
	one, two := generation(0), generation(1)
	indexer, order := filled(1, one), drawn(updates, 1)
	with := make([]any, updates)
	for i, at := range order {
		if i%2 == 0 {
			with[i] = two[at]
		} else {
			with[i] = one[at]
		}
	}
	return nanoseconds(func() {
		for _, o := range with {
			must(indexer.Update(o))
		}
	}) / updates
}

// replace: milliseconds for all objects to be replaced by their next generation, keys built inside.
func replace(indices int) float64 {
	generations := [][]any{generation(0), generation(1)}
	indexer := filled(indices, generations[0])
	return median(times(9, func(i int) { must(indexer.Replace(generations[(i+1)%2], "2")) })) / 1e6
}

// updatesOfMany: updates a second of several goroutines together, each of objects drawn from all.
func updatesOfMany(writers, indices int) float64 {
	one, two := generation(0), generation(1)
	indexer := filled(indices, one)
	var stop atomic.Bool
	var group sync.WaitGroup
	var done atomic.Int64
	for w := range writers {
		order := drawn(1<<17, uint64(w+1))
		group.Go(func() {
			n := 0
			for !stop.Load() {
				from := two
				if n%2 != 0 {
					from = one
				}
				must(indexer.Update(from[order[n%len(order)]]))
				n++
			}
			done.Add(int64(n))
		})
	}
	start := time.Now()
	time.Sleep(1500 * time.Millisecond)
	stop.Store(true)
	group.Wait()
	return float64(done.Load()) / time.Since(start).Seconds()
}
