package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

type podList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []pod
}

func (l *podList) DeepCopyObject() runtime.Object {
	again := *l
	again.Items = append([]pod(nil), l.Items...)
	return &again
}

type noWatchList struct{}

// The reflector asks this name whether to list before it watches.
func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

type source chan watch.Event

func (s source) Stop()                          {}
func (s source) ResultChan() <-chan watch.Event { return s }

// informerEvents: updates a second from a watch to all handlers, or to the store when there is none. 10,000 objects,
// 200,000 updates that were made before and are kept, so the source costs next to nothing.
func informerEvents(handlers int) float64 {
	const objects, updates = 10_000, 200_000
	names := names(objects)
	make1 := func(i, version int) pod {
		meta := metav1.ObjectMeta{Namespace: "default", Name: names[i], ResourceVersion: strconv.Itoa(version)}
		return pod{ObjectMeta: meta, Node: "node-" + strconv.Itoa(i%100)}
	}
	list := &podList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(objects)}}
	for i := range objects {
		list.Items = append(list.Items, make1(i, i+1))
	}
	later := make([]*pod, updates)
	for i := range later {
		p := make1(i*7919%objects, objects+1+i)
		later[i] = &p
	}
	events := make(source, 1024)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return events, nil
		},
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, noWatchList{}), &pod{}, 0, cache.Indexers{})
	var delivered atomic.Int64
	var synced []cache.InformerSynced
	for range handlers {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, _ any) { delivered.Add(1) },
		})
		if err != nil {
			panic(err)
		}
		synced = append(synced, registration.HasSynced)
	}
	stop := make(chan struct{})
	defer close(stop)
	go informer.Run(stop)
	if !cache.WaitForCacheSync(stop, append(synced, informer.HasSynced)...) {
		panic("never synced")
	}
	last := strconv.Itoa(objects + updates)
	done := func() bool {
		if handlers > 0 {
			return delivered.Load() == int64(handlers)*updates
		}
		return informer.LastSyncResourceVersion() == last
	}
	start := time.Now()
	go func() {
		for _, p := range later {
			events <- watch.Event{Type: watch.Modified, Object: p}
		}
	}()
	for !done() {
		time.Sleep(100 * time.Microsecond)
	}
	return updates / time.Since(start).Seconds()
}
