package main

import (
	"fmt"
	"sort"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// A store is the indexed store that informers keep their objects in.
type store struct {
	store cache.ThreadSafeStore
}

func newStore(config fields) (driver, error) {
	indexers, err := indexersOf(config["indexers"])
	if err != nil {
		return nil, err
	}
	return &store{cache.NewThreadSafeStore(indexers, cache.Indices{})}, nil
}

func indexersOf(names any) (cache.Indexers, error) {
	indexers := cache.Indexers{}
	list, _ := names.([]any)
	for _, name := range list {
		name := name.(string)
		if name != "ns" && name != "app" && name != "tags" {
			return nil, fmt.Errorf("the index %s is not driven yet", name)
		}
		indexers[name] = func(in any) ([]string, error) {
			o, ok := in.(*object)
			if !ok {
				return nil, nil
			}
			if name == "ns" {
				return []string{o.Namespace}, nil
			}
			labels, _ := o.raw["labels"].(fields)
			value, ok := labels[name].(string)
			switch {
			case !ok:
				return nil, nil
			case name == "tags":
				return strings.Split(value, "."), nil
			}
			return []string{value}, nil
		}
	}
	return indexers, nil
}

func (s *store) step(step step) (fields, error) {
	obs := fields{}
	key, _ := step.Args["key"].(string)
	index, _ := step.Args["index"].(string)
	value, _ := step.Args["value"].(string)
	var in any
	if step.Args["obj"] != nil {
		in = toObject(step.Args["obj"])
	}
	write := func(f func()) { obs["panicked"] = panics(f) }
	switch step.Op {
	case "add":
		write(func() { s.store.Add(key, in) })
	case "update":
		write(func() { s.store.Update(key, in) })
	case "delete":
		write(func() { s.store.Delete(key) })
	case "delete_with_object":
		write(func() { s.store.DeleteWithObject(key, in) })
	case "transaction":
		txns := []cache.ThreadSafeStoreTransaction{}
		for _, raw := range step.Args["txns"].([]any) {
			raw := raw.(fields)
			kind := map[any]cache.TransactionType{
				"add": cache.TransactionTypeAdd, "update": cache.TransactionTypeUpdate, "delete": cache.TransactionTypeDelete,
			}[raw["op"]]
			txns = append(txns, cache.ThreadSafeStoreTransaction{
				Transaction: cache.Transaction{Object: toObject(raw["obj"]), Type: kind}, Key: raw["key"].(string),
			})
		}
		all, ok := s.store.(cache.ThreadSafeStoreWithTransaction)
		if !ok {
			return nil, fmt.Errorf("the store takes no transactions")
		}
		write(func() { all.Transaction(txns...) })
	case "replace":
		items := map[string]any{}
		for _, item := range step.Args["items"].([]any) {
			item := item.([]any)
			items[item[0].(string)] = toObject(item[1])
		}
		write(func() { s.store.Replace(items, step.Args["rv"].(string)) })
	case "bookmark":
		s.store.Bookmark(step.Args["rv"].(string))
	case "get":
		found, ok := s.store.Get(key)
		obs["found"], obs["obj"] = ok, nil
		if found != nil {
			obs["obj"] = fromPayload(found)
		}
	case "list":
		obs["objs"] = sorted(s.store.List())
	case "index":
		var found []any
		var err error
		write(func() { found, err = s.store.Index(index, in) })
		obs["err"], obs["objs"] = s.class(err, index), sorted(found)
	case "by_index":
		found, err := s.store.ByIndex(index, value)
		obs["err"], obs["objs"] = s.class(err, index), sorted(found)
	case "index_keys":
		keys, err := s.store.IndexKeys(index, value)
		obs["err"], obs["keys_of_value"] = s.class(err, index), append([]string{}, keys...)
	case "list_index_values":
		values := append([]string{}, s.store.ListIndexFuncValues(index)...)
		sort.Strings(values)
		obs["values"] = values
	case "add_indexers":
		more, err := indexersOf(step.Args["names"])
		if err != nil {
			return nil, err
		}
		conflict := false
		for name := range more {
			_, has := s.store.GetIndexers()[name]
			conflict = conflict || has
		}
		write(func() { err = s.store.AddIndexers(more) })
		obs["err"] = class(err)
		if err != nil && conflict {
			obs["err"] = fields{"class": "indexer_conflict"}
		}
		names := []string{}
		for name := range s.store.GetIndexers() {
			names = append(names, name)
		}
		sort.Strings(names)
		obs["indexers"] = names
	default:
		return nil, fmt.Errorf("the operation %s is unknown", step.Op)
	}
	keys := append([]string{}, s.store.ListKeys()...)
	sort.Strings(keys)
	obs["keys"], obs["last_rv"] = keys, s.store.LastStoreSyncResourceVersion()
	return obs, nil
}

// class of an error of a read by index.
func (s *store) class(err error, index string) any {
	if _, has := s.store.GetIndexers()[index]; err != nil && !has {
		return fields{"class": "no_such_index"}
	}
	return class(err)
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return
}

// sorted shows objects in the order of their texts; the store's own is arbitrary.
func sorted(objects []any) []any {
	out := []any{}
	for _, o := range objects {
		out = append(out, fromPayload(o))
	}
	text := func(i int) string { t, _ := encode(out[i]); return t }
	sort.Slice(out, func(i, j int) bool { return text(i) < text(j) })
	return out
}
