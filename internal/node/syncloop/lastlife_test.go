package syncloop

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestLastLives(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var l lastLives[string]
	if _, ok := l.take("a", now); ok {
		t.Error("take returned state that nobody kept")
	}
	l.keep("a", "one", now)
	l.keep("b", "two", now.Add(time.Second))
	if left, ok := l.take("a", now.Add(lastLifeFor)); !ok || left != "one" {
		t.Errorf("a left %q, %t", left, ok)
	}
	if _, ok := l.take("a", now); ok {
		t.Error("take returned the same state twice")
	}
	if _, ok := l.take("b", now.Add(time.Hour)); ok {
		t.Error("take returned state that is an hour old")
	}
	for i := range 2 * lastLivesMost {
		l.keep(types.UID(fmt.Sprint(i)), "many", now)
	}
	if len(l.of) != lastLivesMost {
		t.Errorf("%d lives are remembered", len(l.of))
	}
	l.keep("late", "last", now.Add(2*lastLifeFor))
	if left, ok := l.take("late", now.Add(2*lastLifeFor)); !ok || left != "last" {
		t.Errorf("after the others had aged, %q, %t", left, ok)
	}
}
