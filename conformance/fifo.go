package main

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// An object is what the queues carry.
type object struct {
	metav1.ObjectMeta
	raw fields
	// How often a transform has seen it.
	passes int
}

// An unkeyed is something that no key can be made of.
type unkeyed struct{ id any }

var (
	errProcess   = errors.New("the processing was told to fail")
	errTransform = errors.New("the transform was told to fail")
)

// A fifo is a RealFIFO with atomic events, and how many deltas wait in it: its own count is not public.
type fifo struct {
	queue     *cache.RealFIFO
	bookmarks bool
	waiting   int
	closed    bool
	// The batch size that a trace was recorded with, when it was not a user's.
	batchSize int
}

func newFIFO(config fields) (driver, error) {
	if config["known"] != "none" || config["atomic"] != true {
		return nil, errors.New("known objects are not driven yet")
	}
	transform, err := transformOf(config["transform"])
	if err != nil {
		return nil, err
	}
	f := &fifo{bookmarks: config["bookmarks"] == true, batchSize: int(number(config["batch_size"]))}
	f.queue = cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction:           cache.MetaNamespaceKeyFunc,
		Transformer:           transform,
		AtomicEvents:          true,
		UnlockWhileProcessing: config["unlock"] == true,
		EmitDeltaTypeBookmark: f.bookmarks,
	})
	return f, nil
}

func transformOf(name any) (cache.TransformFunc, error) {
	count := func(in any) (any, error) {
		o, ok := in.(*object)
		if !ok {
			return in, nil
		}
		again := *o
		again.passes++
		return &again, nil
	}
	switch name {
	case "none":
		return nil, nil
	case "count":
		return count, nil
	case "fail_a":
		return func(in any) (any, error) {
			if o, ok := in.(*object); ok && o.Name == "a" {
				return nil, errTransform
			}
			return count(in)
		}, nil
	}
	return nil, fmt.Errorf("the transform %v is unknown", name)
}

func (f *fifo) step(s step) (fields, error) {
	obs := fields{}
	var err error
	switch s.Op {
	case "add":
		err = f.put(f.queue.Add, s.Args["obj"])
	case "update":
		err = f.put(f.queue.Update, s.Args["obj"])
	case "delete":
		err = f.put(f.queue.Delete, s.Args["obj"])
	case "replace":
		list := []any{}
		for _, raw := range s.Args["objs"].([]any) {
			list = append(list, toObject(raw))
		}
		err = f.queue.Replace(list, s.Args["rv"].(string))
		f.count(err, 1)
	case "resync":
		err = f.queue.Resync()
		f.count(err, 1)
	case "bookmark":
		err = f.queue.Bookmark(s.Args["rv"].(string))
		if f.bookmarks {
			f.count(err, 1)
		}
	case "close":
		f.queue.Close()
		f.closed = true
		obs["synced"] = f.queue.HasSynced()
		return obs, nil
	case "pop", "pop_batch":
		if f.waiting == 0 && !f.closed {
			obs["would_block"] = true
			obs["synced"] = f.queue.HasSynced()
			return obs, nil
		}
		err = f.pop(s, obs)
	default:
		return nil, fmt.Errorf("the operation %s is unknown", s.Op)
	}
	obs["err"] = class(err)
	obs["synced"] = f.queue.HasSynced()
	return obs, nil
}

func (f *fifo) put(door func(any) error, raw any) error {
	err := door(toObject(raw))
	f.count(err, 1)
	return err
}

func (f *fifo) count(err error, n int) {
	if err == nil {
		f.waiting += n
	}
}

func (f *fifo) pop(s step, obs fields) error {
	var taken []any
	saw := func(deltas []cache.Delta, initial bool) error {
		if taken == nil {
			obs["in_initial_list"] = initial
			obs["synced_during"] = f.queue.HasSynced()
		}
		for _, d := range deltas {
			taken = append(taken, fields{"type": string(d.Type), "obj": fromPayload(d.Object)})
		}
		f.waiting -= len(deltas)
		obs["deltas"] = taken
		if s.Args["fail"] == true {
			return errProcess
		}
		return nil
	}
	one := func(in any, initial bool) error { return saw(in.(cache.Deltas), initial) }
	if s.Op == "pop" {
		returned, err := f.queue.Pop(one)
		if deltas, ok := returned.(cache.Deltas); ok {
			obs["returned"] = len(deltas)
		} else {
			obs["returned"] = nil
		}
		return err
	}
	// A batch that a size ended which no user can set is asked for one by one: what it was made of is checked, where it
	// ended is not.
	if recorded, ok := s.Obs["deltas"].([]any); ok && f.batchSize > 1 && len(recorded) == f.batchSize {
		var err error
		for range recorded {
			_, err = f.queue.Pop(one)
		}
		obs["single"] = false
		return err
	}
	return f.queue.PopBatch(
		func(deltas []cache.Delta, initial bool) error {
			obs["single"] = false
			return saw(deltas, initial)
		},
		func(in any, initial bool) error {
			obs["single"] = true
			return one(in, initial)
		})
}

func class(err error) any {
	var key cache.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &key):
		return fields{"class": "key_error"}
	case errors.Is(err, cache.ErrFIFOClosed):
		return fields{"class": "fifo_closed"}
	case errors.Is(err, errProcess):
		return fields{"class": "process_error"}
	case errors.Is(err, errTransform):
		return fields{"class": "transform_error"}
	}
	return fields{"class": "other"}
}

func toObject(in any) any {
	raw := in.(fields)
	if id, bad := raw["bad"]; bad {
		return unkeyed{id}
	}
	if t, ok := raw["tombstone"].(fields); ok {
		last := cache.DeletedFinalStateUnknown{Key: t["key"].(string)}
		if t["obj"] != nil {
			last.Obj = toObject(t["obj"])
		}
		return last
	}
	o := &object{raw: raw}
	o.Namespace, o.Name, o.ResourceVersion = raw["ns"].(string), raw["name"].(string), raw["rv"].(string)
	o.passes = int(number(raw["t"]))
	return o
}

func fromPayload(in any) any {
	switch in := in.(type) {
	case *object:
		out := fields{}
		for name, value := range in.raw {
			out[name] = value
		}
		if in.passes > 0 {
			out["t"] = in.passes
		}
		return out
	case unkeyed:
		return fields{"bad": in.id}
	case cache.DeletedFinalStateUnknown:
		var last any
		if in.Obj != nil {
			last = fromPayload(in.Obj)
		}
		return fields{"tombstone": fields{"key": in.Key, "obj": last}}
	case cache.ReplacedAllInfo:
		list := []any{}
		for _, o := range in.Objects {
			list = append(list, fromPayload(o))
		}
		return fields{"replaced_all": fields{"rv": in.ResourceVersion, "objs": list}}
	case cache.SyncAllInfo:
		return fields{"sync_all": fields{}}
	case cache.BookmarkInfo:
		return fields{"bookmark": fields{"rv": in.ResourceVersion}}
	}
	return fields{"unknown": strings.TrimSpace(fmt.Sprintf("%T", in))}
}
