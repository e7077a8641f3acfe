package main

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

var seen int // so that no read is left out

// getCold: nanoseconds for one object to be found by its key, in random order, its version looked at.
func getCold() float64 {
	const gets = 2_000_000
	all := generation(0)
	indexer, keys, order := filled(1, all), keysOf(all), drawn(gets, 1)
	return nanoseconds(func() { seen += getAll(indexer, keys, order) }) / gets
}

func getAll(indexer cache.Indexer, keys []string, order []int) int {
	length := 0
	for _, at := range order {
		o, _, _ := indexer.GetByKey(keys[at])
		length += len(o.(*bigPod).ResourceVersion)
	}
	return length
}

// getByTwo: the same, gets a second of two goroutines together.
func getByTwo() float64 {
	const gets = 4_000_000
	all := generation(0)
	indexer, keys := filled(1, all), keysOf(all)
	orders := [][]int{drawn(gets, 1), drawn(gets, 2)}
	var group sync.WaitGroup
	start := time.Now()
	for _, order := range orders {
		group.Go(func() { getAll(indexer, keys, order) })
	}
	group.Wait()
	return 2 * gets / time.Since(start).Seconds()
}

// list: microseconds for a list of all objects.
func list() float64 {
	indexer := filled(3, generation(0))
	return median(times(100, func(int) { seen += len(indexer.List()) })) / 1e3
}

// byIndex: microseconds for the 1,000 objects of one of 100 namespaces.
func byIndex() float64 {
	all := generation(0)
	indexer := filled(3, all)
	return median(times(500, func(i int) {
		found, err := indexer.ByIndex(cache.NamespaceIndex, all[i%100].(*bigPod).Namespace)
		must(err)
		seen += len(found)
	})) / 1e3
}

func times(n int, f func(int)) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = nanoseconds(func() { f(i) })
	}
	return out
}
