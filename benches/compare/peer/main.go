// Command compare measures one row on the real client-go and prints the figure, in the row's unit.
//
//	peer ROW
//
// benches/compare/run calls it in turn with the program that measures the same on ours.
package main

import (
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var rows = map[string]func() float64{
	"T1":         queueCycle,
	"T5.carried": getCold,
	"T5.inside":  getCold,
	"T5.two":     getByTwo,
	"T6.p99":     func() float64 { return updateBesideList(0.99) },
	"T6.p999":    func() float64 { return updateBesideList(0.999) },
	"T7.iterate": list,
	"T7.collect": list,
	"T7.index":   byIndex,
	"T8":         getBesideReplace,
	"T9.one":     update,
	"T9.batch":   update,
	"T10.1":      func() float64 { return replace(1) },
	"T10.3":      func() float64 { return replace(3) },
	"T11.0":      func() float64 { return bytesPerObject(0) },
	"T11.1":      func() float64 { return bytesPerObject(1) },
	"T11.3":      func() float64 { return bytesPerObject(3) },
	"T11.left":   bytesAfterDeleting,
	"T12.one":    fifoEvents,
	"T12.burst":  fifoEvents,
	"T14.0":      func() float64 { return informerEvents(0) },
	"T14.1":      func() float64 { return informerEvents(1) },
	"T14.10":     func() float64 { return informerEvents(10) },
	"T21.1w0":    func() float64 { return updatesOfMany(1, 0) },
	"T21.1w1":    func() float64 { return updatesOfMany(1, 1) },
	"T21.2w0":    func() float64 { return updatesOfMany(2, 0) },
	"T21.2w1":    func() float64 { return updatesOfMany(2, 1) },
	"T21.4w0":    func() float64 { return updatesOfMany(4, 0) },
	"T21.4w1":    func() float64 { return updatesOfMany(4, 1) },
	"T21.16w0":   func() float64 { return updatesOfMany(16, 0) },
	"T21.16w1":   func() float64 { return updatesOfMany(16, 1) },
}

func main() {
	if len(os.Args) != 2 || rows[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: peer ROW")
		os.Exit(2)
	}
	fmt.Println(rows[os.Args[1]]())
}

// A pod is what is queued, stored and watched: metadata and a little more.
type pod struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Node string
}

func (p *pod) DeepCopyObject() runtime.Object {
	again := *p
	return &again
}

// names of objects, the same as on the other side.
func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("pod-%d", i)
	}
	return out
}
