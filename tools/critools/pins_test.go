// Package critools pins the versions of crictl and critest. critest is built as a test binary (go test -c), so this file imports what
// critest's tests import.
package critools

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
