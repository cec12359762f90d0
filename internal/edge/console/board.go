package console

import (
	"encoding/json"
	"fmt"
)

// These bound what a board holds.
const (
	maxDocument  = 256 << 10 // bytes
	maxDocuments = 20_000
)

// Board holds the documents that viewers see, each under a key. It is not safe for concurrent use.
type Board struct {
	docs    map[string]*document
	version uint64 // counts changes
	round   uint64 // counts calls of Source.Look
}

type document struct {
	body    []byte // JSON without line breaks
	version uint64 // when it changed last
	round   uint64 // when it was last put or kept
}

// Put sets a document. A value that is too large, or that JSON cannot express, becomes a document that says so.
func (b *Board) Put(key string, value any) {
	body, err := json.Marshal(value)
	switch {
	case err != nil:
		body, _ = json.Marshal(map[string]string{"problem": err.Error()})
	case len(body) > maxDocument:
		body, _ = json.Marshal(map[string]string{"problem": fmt.Sprintf("this part of the page has %d bytes, and at most %d are shown", len(body), maxDocument)})
	}
	d := b.docs[key]
	if d == nil {
		if len(b.docs) >= maxDocuments {
			return
		}
		d = &document{}
		b.docs[key] = d
	}
	d.round = b.round
	if string(d.body) != string(body) {
		b.version++
		d.body, d.version = body, b.version
	}
}

// Keep keeps a document as it is. It returns false if there is none, so that the caller has to put it.
func (b *Board) Keep(key string) bool {
	d := b.docs[key]
	if d == nil {
		return false
	}
	d.round = b.round
	return true
}

// sweep removes the documents that the last round neither put nor kept.
func (b *Board) sweep() {
	for key, d := range b.docs {
		if d.round != b.round {
			delete(b.docs, key)
			b.version++
		}
	}
}
