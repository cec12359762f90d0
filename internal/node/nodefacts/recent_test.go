package nodefacts

import (
	"testing"
	"testing/synctest"
	"time"
)

// Facts that were read before the configuration changed are not stored after the change.
func TestFactsReadBeforeAChangeAreNotKept(t *testing.T) {
	t.Parallel()
	var r Recent[string]
	_, old, _ := r.Last()
	r.Forget()
	r.Put(old, "before")
	f, ticket, ok := r.Last()
	if ok {
		t.Fatalf("facts of before the change are in use: %q", f)
	}
	r.Put(ticket, "after")
	r.Put(old, "before")
	if f, _, ok := r.Last(); !ok || f != "after" {
		t.Errorf("the facts are %q, %v", f, ok)
	}
}

// When the facts are old, one container start reads them again, and the others do not wait for it.
func TestOldFactsAreReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Recent[string]
		_, ticket, _ := r.Last()
		r.Put(ticket, "first")
		time.Sleep(recentFor - time.Millisecond)
		if f, _, ok := r.Last(); !ok || f != "first" {
			t.Errorf("recent facts: %q, %t", f, ok)
		}
		time.Sleep(time.Millisecond)
		_, ticket, ok := r.Last()
		if ok {
			t.Fatal("old facts are not read again")
		}
		if f, _, ok := r.Last(); !ok || f != "first" {
			t.Errorf("while the facts are read, another start gets %q, %t", f, ok)
		}
		r.Put(ticket, "second")
		if f, _, ok := r.Last(); !ok || f != "second" {
			t.Errorf("after the facts were read: %q, %t", f, ok)
		}
	})
}
