package dev

import "testing"

// The CSI example shows the fields of kubectl describe that it names, with what is indented below them.
func TestFieldsOf(t *testing.T) {
	t.Parallel()
	const text = "Name:   data-0\nStatus:  Pending\nConditions:\n  Type   Status\n  Ready  False\nVolumes:\n  disk:\nEvents:\n  Type  Reason\n  ----  ------\n"
	const want = "Status:  Pending\nConditions:\n  Type   Status\n  Ready  False\nEvents:\n  Type  Reason\n  ----  ------\n"
	if got := fieldsOf(text, []string{"Status", "Conditions", "Events"}); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
