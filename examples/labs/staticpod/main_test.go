package main

import (
	"bytes"
	"testing"

	"github.com/wherry-node/wherry/examples/labs/lab"
)

// The mirror that the lab creates exists and is Pending.
func TestLab(t *testing.T) {
	t.Parallel()
	client, _, err := lab.Client("")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, client, "myjtthink"); err != nil {
		t.Fatal(err)
	}
	const want = `NAME                          READY   STATUS
kube-mystatic-myjtthink       0/1     Pending
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
}
