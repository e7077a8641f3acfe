// The peer runs client-go's informer, with its defaults, as one party of the comparison. It speaks in lines: it tells
// when it is synced, and answers `expect COUNT DIGEST` once it has that state, with the time at which it came to have it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var (
	host = flag.String("host", "", "where the server is")
	dir  = flag.String("dir", "", "where the certificates are")
	user = flag.String("user", "", "whose certificate to use")
	ns   = flag.String("namespace", "", "which namespace to watch")
)

// traffic counts what was asked and what came.
type traffic struct {
	next           http.RoundTripper
	lists, watches atomic.Int64
	// When a watch was last answered 410, in microseconds; zero once a list was asked for. And how long that took.
	expired, toList atomic.Int64
}

func (t *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if q.Get("watch") == "" || q.Get("sendInitialEvents") == "true" {
		t.lists.Add(1)
		if at := t.expired.Swap(0); at != 0 {
			t.toList.Store(time.Now().UnixMicro() - at)
		}
		return t.next.RoundTrip(r)
	}
	t.watches.Add(1)
	answer, err := t.next.RoundTrip(r)
	if err == nil {
		answer.Body = watched{answer.Body, t}
	}
	return answer, err
}

// watched is the body of a watch, in which a 410 is looked for.
type watched struct {
	io.ReadCloser
	t *traffic
}

func (w watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if bytes.Contains(b[:n], []byte(`"code":410`)) {
		w.t.expired.Store(time.Now().UnixMicro())
	}
	return n, err
}

// counted is a connection whose incoming bytes are counted, as they are on the wire.
type counted struct {
	net.Conn
	count *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.count.Add(int64(n))
	return n, err
}

// state is what the handler was told so far: how many objects, and a sum over their keys and versions that does not
// depend on the order.
type state struct {
	mu       sync.Mutex
	count    int
	digest   uint64
	events   int64
	since    time.Time
	expected string
	want     struct {
		count  int
		digest uint64
	}
}

func of(o *corev1.ConfigMap) uint64 {
	h := fnv.New64a()
	h.Write([]byte(o.Namespace + "/" + o.Name + "@" + o.ResourceVersion))
	return h.Sum64()
}

func (s *state) change(old, now *corev1.ConfigMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old != nil && now != nil && old.ResourceVersion == now.ResourceVersion {
		return
	}
	if old != nil {
		s.count--
		s.digest -= of(old)
	}
	if now != nil {
		s.count++
		s.digest += of(now)
	}
	s.events++
	s.since = time.Now()
	s.agree()
}

// agree tells when what is expected is what there is; with the lock held.
func (s *state) agree() {
	if s.expected != "" && s.count == s.want.count && s.digest == s.want.digest {
		say("agreed %s %d", s.expected, s.since.UnixMicro())
		s.expected = ""
	}
}

var out sync.Mutex

func say(format string, args ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Printf(format+"\n", args...)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// peak is the most memory that this process ever had, in kB.
func peak() string {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.Fields(rest)[0]
		}
	}
	return "0"
}

func main() {
	flag.Parse()
	var received atomic.Int64
	t := &traffic{}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	config := &rest.Config{
		Host: *host, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: *dir + "/server-ca.crt", CertFile: *dir + "/" + *user + ".crt", KeyFile: *dir + "/" + *user + ".key"},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return counted{c, &received}, nil
		},
		// What the Rust parties speak as well.
		ContentConfig: rest.ContentConfig{AcceptContentTypes: "application/json", ContentType: "application/json"},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { t.next = next; return t },
	}
	client, err := kubernetes.NewForConfig(config)
	must(err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(*ns))
	informer := factory.Core().V1().ConfigMaps().Informer()
	s := &state{}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.change(nil, o.(*corev1.ConfigMap)) },
		UpdateFunc: func(old, now any) { s.change(old.(*corev1.ConfigMap), now.(*corev1.ConfigMap)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			s.change(o.(*corev1.ConfigMap), nil)
		},
	})
	must(err)
	began := time.Now()
	stop := make(chan struct{})
	factory.Start(stop)
	go func() {
		for !registration.HasSynced() {
			time.Sleep(time.Millisecond)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		say("synced %d %d", time.Since(began).Microseconds(), s.count)
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var name string
		var count int
		var digest uint64
		switch words := strings.Fields(in.Text()); words[0] {
		case "expect":
			_, err := fmt.Sscan(strings.Join(words[1:], " "), &name, &count, &digest)
			must(err)
			s.mu.Lock()
			s.expected, s.want.count, s.want.digest = name, count, digest
			s.agree()
			s.mu.Unlock()
		case "stats":
			s.mu.Lock()
			text, _ := json.Marshal(map[string]any{"events": s.events, "lists": t.lists.Load(), "watches": t.watches.Load(),
				"bytes": received.Load(), "to_list": t.toList.Swap(0), "peak_kb": peak()})
			s.mu.Unlock()
			say("stats %s", text)
		}
	}
	close(stop)
	factory.Shutdown()
}
