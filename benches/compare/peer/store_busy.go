package main

import (
	"sync/atomic"
	"time"
)

// updateBesideList: nanoseconds of an update, at this percentile, of a writer at full speed beside a goroutine that lists
// all objects again and again. One index, three seconds.
func updateBesideList(p float64) float64 {
	one, two := generation(0), generation(1)
	indexer, order := filled(1, one), drawn(1<<20, 1)
	var stop atomic.Bool
	ended := make(chan int)
	go func() {
		length := 0
		for !stop.Load() {
			length += len(indexer.List())
		}
		ended <- length
	}()
	time.Sleep(20 * time.Millisecond)
	var took []float64
	for start := time.Now(); time.Since(start) < 3*time.Second; {
		n := len(took)
		from := one
		if n%2 == 0 {
			from = two
		}
		o := from[order[n%len(order)]]
		took = append(took, nanoseconds(func() { must(indexer.Update(o)) }))
	}
	stop.Store(true)
	seen += <-ended
	return percentile(took, p)
}

// getBesideReplace: nanoseconds of a get, one every 10 µs, at percentile 99.99, of those that began while a replace of
// all objects was under way. One index, 20 replaces with pauses.
func getBesideReplace() float64 {
	one, two := generation(0), generation(1)
	indexer, keys, order := filled(1, one), keysOf(one), drawn(1<<20, 1)
	var under, stop atomic.Bool
	ended := make(chan []float64)
	go func() {
		var took []float64
		next := time.Now()
		for n := 0; !stop.Load(); n++ {
			for time.Now().Before(next) {
			}
			within := under.Load()
			ns := nanoseconds(func() { _, found, _ := indexer.GetByKey(keys[order[n%len(order)]]); must(is(found)) })
			if within {
				took = append(took, ns)
			}
			next = time.Now().Add(10 * time.Microsecond)
		}
		ended <- took
	}()
	for i := range 20 {
		with := one
		if i%2 == 0 {
			with = two
		}
		time.Sleep(20 * time.Millisecond)
		under.Store(true)
		must(indexer.Replace(with, "2"))
		under.Store(false)
	}
	stop.Store(true)
	return percentile(<-ended, 0.9999)
}
