package main

// What the rows of the store share: 100,000 objects, the same and under the same keys as on the other side, in the real
// indexer. T5 and T7 are in store_read.go, T6 and T8 in store_busy.go, T9, T10 and T21 in store_write.go, T11 in
// store_bytes.go.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const objects = 100_000

// A bigPod is as large as the pods of a cluster, about 1.4 kB.
type bigPod struct {
	pod
	App     string
	Payload [1024]byte
}

// generation makes all objects anew. Those of two generations differ in their versions only.
func generation(of int) []any {
	out := make([]any, objects)
	for i := range out {
		p := &bigPod{App: fmt.Sprintf("app-%d", i%500)}
		p.ObjectMeta = metav1.ObjectMeta{
			Namespace:       fmt.Sprintf("namespace-%02d", i%100),
			Name:            fmt.Sprintf("pod-%06d", i),
			ResourceVersion: strconv.Itoa(of*objects + i + 1),
			UID:             types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)),
		}
		p.Node = fmt.Sprintf("node-%05d.example", i*7919%5000)
		out[i] = p
	}
	return out
}

// indexers are 0, 1 (by namespace, 1,000 objects a value) or 3 (by node and by app as well).
func indexers(n int) cache.Indexers {
	all := cache.Indexers{}
	if n >= 1 {
		all[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	}
	if n >= 3 {
		all["node"] = func(o any) ([]string, error) { return []string{o.(*bigPod).Node}, nil }
		all["app"] = func(o any) ([]string, error) { return []string{o.(*bigPod).App}, nil }
	}
	return all
}

func filled(indices int, with []any) cache.Indexer {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers(indices))
	must(indexer.Replace(with, "1"))
	return indexer
}

func keysOf(all []any) []string {
	keys := make([]string, len(all))
	for i, o := range all {
		key, err := cache.MetaNamespaceKeyFunc(o)
		must(err)
		keys[i] = key
	}
	return keys
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// drawn numbers below objects, the same for the same seed.
func drawn(n int, seed uint64) []int {
	r := rand.New(rand.NewPCG(seed, 0))
	out := make([]int, n)
	for i := range out {
		out[i] = r.IntN(objects)
	}
	return out
}

func nanoseconds(f func()) float64 {
	start := time.Now()
	f()
	return float64(time.Since(start).Nanoseconds())
}

func median(figures []float64) float64 { return percentile(figures, 0.5) }

func percentile(figures []float64, p float64) float64 {
	slices.Sort(figures)
	return figures[int(float64(len(figures)-1)*p)]
}
