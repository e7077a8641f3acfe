package main

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// fifoEvents: events a second through a RealFIFO as informers make it, from one goroutine to another, 10,000 keys. There
// is no door for several events at once, so bursts are single calls as well.
func fifoEvents() float64 {
	const keys, events = 10_000, 1_000_000
	queue := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction:           cache.MetaNamespaceKeyFunc,
		AtomicEvents:          true,
		UnlockWhileProcessing: true,
		EmitDeltaTypeBookmark: true,
	})
	names := names(keys)
	versions := make([]string, keys)
	for i := range versions {
		versions[i] = strconv.Itoa(i + 1)
	}
	start := time.Now()
	go func() {
		for i := range events {
			at := i % keys
			p := &pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: names[at], ResourceVersion: versions[at]}}
			if err := queue.Update(p); err != nil {
				panic(err)
			}
		}
	}()
	seen := 0
	for seen < events {
		err := queue.PopBatch(
			func(deltas []cache.Delta, _ bool) error { seen += len(deltas); return nil },
			func(any, bool) error { seen++; return nil })
		if err != nil {
			panic(err)
		}
	}
	return events / time.Since(start).Seconds()
}
