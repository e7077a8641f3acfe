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
	"T1":        queueCycle,
	"T12.one":   fifoEvents,
	"T12.burst": fifoEvents,
	"T14.0":     func() float64 { return informerEvents(0) },
	"T14.1":     func() float64 { return informerEvents(1) },
	"T14.10":    func() float64 { return informerEvents(10) },
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
