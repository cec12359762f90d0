package agent

import (
	"testing"

	"github.com/wherry-node/wherry/internal/node/perform"
)

// Facts that were read before the configuration changed are not stored after the change.
func TestFactsReadBeforeAChangeAreNotKept(t *testing.T) {
	t.Parallel()
	var c factsCache
	_, old, _ := c.last()
	c.forget()
	c.put(old, perform.Facts{NodeName: "before"})
	f, ticket, ok := c.last()
	if ok {
		t.Fatalf("facts of before the change are in use: %q", f.NodeName)
	}
	c.put(ticket, perform.Facts{NodeName: "after"})
	c.put(old, perform.Facts{NodeName: "before"})
	if f, _, ok := c.last(); !ok || f.NodeName != "after" {
		t.Errorf("the facts are %q, %v", f.NodeName, ok)
	}
}
