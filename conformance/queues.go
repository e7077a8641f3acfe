package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// A queue is the plain workqueue. What is in its sets is not public; what is in process is what was got and not done.
type queue struct {
	queue workqueue.TypedInterface[string]
	held  map[string]bool
	// Closed when the drain that was begun has returned.
	drained chan struct{}
	// Whether somebody shut it down after the drain began.
	cut bool
}

func newQueue(config fields) (driver, error) {
	if config["order"] != "fifo" || config["metrics"] == true {
		return nil, errors.New("orders and metrics are not driven yet")
	}
	return &queue{queue: workqueue.NewTyped[string](), held: map[string]bool{}}, nil
}

func (q *queue) step(s step) (fields, error) {
	obs := fields{}
	key, _ := s.Args["key"].(string)
	switch s.Op {
	case "add":
		q.queue.Add(key)
	case "done":
		delete(q.held, key)
		q.queue.Done(key)
	case "get":
		if q.queue.Len() == 0 && !q.queue.ShuttingDown() {
			obs["would_block"] = true
			break
		}
		key, down := q.queue.Get()
		obs["key"], obs["shutdown"] = key, down
		if !down {
			q.held[key] = true
		}
	case "shutdown":
		q.cut = q.drained != nil
		q.queue.ShutDown()
	case "shutdown_with_drain":
		drained := make(chan struct{})
		q.drained = drained
		go func() {
			q.queue.ShutDownWithDrain()
			close(drained)
		}()
		for !q.queue.ShuttingDown() {
			runtime.Gosched()
		}
	default:
		return nil, fmt.Errorf("%s is not driven yet", s.Op)
	}
	if q.drained != nil {
		obs["drain_returned"] = q.drainReturned()
	}
	obs["len"], obs["shutting_down"] = q.queue.Len(), q.queue.ShuttingDown()
	return obs, nil
}

// drainReturned waits long for a drain that nothing is known to hold up, and shortly for every other.
func (q *queue) drainReturned() bool {
	patience := 5 * time.Millisecond
	if len(q.held) == 0 || q.cut {
		patience = 5 * time.Second
	}
	select {
	case <-q.drained:
		return true
	case <-time.After(patience):
		return false
	}
}

type limiter struct {
	limiter workqueue.TypedRateLimiter[string]
}

func newLimiter(config fields) (driver, error) {
	made, err := limiterOf(config)
	return &limiter{made}, err
}

func limiterOf(config fields) (workqueue.TypedRateLimiter[string], error) {
	duration := func(name string) time.Duration { return time.Duration(number(config[name])) }
	switch config["limiter"] {
	case "item_exponential":
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](duration("base_ns"), duration("max_ns")), nil
	case "item_fast_slow":
		return workqueue.NewTypedItemFastSlowRateLimiter[string](duration("fast_ns"), duration("slow_ns"), int(number(config["max_fast"]))), nil
	case "max_of":
		var all []workqueue.TypedRateLimiter[string]
		for _, one := range config["of"].([]any) {
			made, err := limiterOf(one.(fields))
			if err != nil {
				return nil, err
			}
			all = append(all, made)
		}
		return workqueue.NewTypedMaxOfRateLimiter(all...), nil
	}
	return nil, fmt.Errorf("the limiter %v is unknown", config["limiter"])
}

func (l *limiter) step(s step) (fields, error) {
	obs := fields{}
	key := s.Args["key"].(string)
	switch s.Op {
	case "when":
		obs["ns"] = l.limiter.When(key).Nanoseconds()
	case "forget":
		l.limiter.Forget(key)
	default:
		return nil, fmt.Errorf("the operation %s is unknown", s.Op)
	}
	obs["num_requeues"] = l.limiter.NumRequeues(key)
	return obs, nil
}
