package lastlife

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestLives(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var l Lives[string]
	if _, ok := l.Take("a", now); ok {
		t.Error("Take returned state that nobody kept")
	}
	l.Keep("a", "one", now)
	l.Keep("b", "two", now.Add(time.Second))
	if left, ok := l.Take("a", now.Add(keptFor)); !ok || left != "one" {
		t.Errorf("a left %q, %t", left, ok)
	}
	if _, ok := l.Take("a", now); ok {
		t.Error("Take returned the same state twice")
	}
	if _, ok := l.Take("b", now.Add(time.Hour)); ok {
		t.Error("Take returned state that is an hour old")
	}
	for i := range 2 * livesMost {
		l.Keep(types.UID(fmt.Sprint(i)), "many", now)
	}
	if len(l.of) != livesMost {
		t.Errorf("%d lives are remembered", len(l.of))
	}
	l.Keep("late", "last", now.Add(2*keptFor))
	if left, ok := l.Take("late", now.Add(2*keptFor)); !ok || left != "last" {
		t.Errorf("after the others had aged, %q, %t", left, ok)
	}
}
