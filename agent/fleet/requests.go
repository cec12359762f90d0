package fleet

import (
	"net/http"
	"sync/atomic"
	"time"
)

// verbs are the kinds of requests that are counted.
var verbs = [...]string{"GET", "WATCH", "POST", "PUT", "PATCH", "DELETE"}

// requests counts the nodes' requests to the API server. Methods may be called concurrently.
type requests struct {
	sent   [len(verbs)]atomic.Uint64
	failed atomic.Uint64
	waited atomic.Int64 // nanoseconds until the answers of all requests began
	turns  *turns       // learns how long writes take
}

func newRequests() *requests { return &requests{turns: newTurns()} }

// over returns a transport that counts each request and sends it with next.
func (q *requests) over(next http.RoundTripper) http.RoundTripper { return counted{q, next} }

type counted struct {
	*requests
	next http.RoundTripper
}

// RoundTrip sends a request.
func (q counted) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := r.Method
	if r.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	for i, known := range verbs {
		if verb == known {
			q.sent[i].Add(1)
		}
	}
	began := time.Now()
	resp, err := q.next.RoundTrip(r)
	took := time.Since(began)
	q.waited.Add(int64(took))
	if err == nil && r.Method != http.MethodGet {
		q.turns.wrote(took)
	}
	if err != nil && r.Context().Err() == nil || err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500) {
		q.failed.Add(1)
	}
	return resp, err
}

// Requests counts the requests of all nodes to the API server since the start, those of the watches that the nodes share not counted.
type Requests struct {
	Total  uint64            `json:"total"`
	ByVerb map[string]uint64 `json:"byVerb"` // GET, WATCH, POST, PUT, PATCH, DELETE
	// Failed is how many got no answer, or an answer that the API server is overloaded (429) or broken (5xx).
	Failed uint64 `json:"failed"`
	// EventsWaiting is how many events wait now, because the API server is slow and other requests come first.
	EventsWaiting int `json:"eventsWaiting"`
	// Waited is the time until the answers began, of all requests together. Waited/Total is the mean.
	Waited time.Duration `json:"waited"`
}

func (q *requests) count() Requests {
	out := Requests{ByVerb: map[string]uint64{}, Failed: q.failed.Load(), Waited: time.Duration(q.waited.Load()), EventsWaiting: q.turns.waiting()}
	for i, verb := range verbs {
		n := q.sent[i].Load()
		out.ByVerb[verb] = n
		out.Total += n
	}
	return out
}
