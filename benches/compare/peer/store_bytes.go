package main

import (
	"runtime"

	"k8s.io/client-go/tools/cache"
)

// bytesPerObject: bytes of heap for each object that is stored, besides the object.
func bytesPerObject(indices int) float64 {
	all := generation(0)
	before := heap()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers(indices))
	must(indexer.Replace(all, "1"))
	grown := heap() - before
	runtime.KeepAlive(all)
	runtime.KeepAlive(indexer)
	return float64(grown) / objects
}

// bytesAfterDeleting: how many times more bytes a remaining object costs when 90 % were deleted. One index.
func bytesAfterDeleting() float64 {
	all := generation(0)
	before := heap()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers(1))
	must(indexer.Replace(all, "1"))
	full := float64(heap()-before) / objects
	for i, o := range all {
		if i%10 != 0 {
			must(indexer.Delete(o))
		}
	}
	left := float64(heap()-before) / (objects / 10)
	runtime.KeepAlive(all)
	runtime.KeepAlive(indexer)
	return left / full
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
