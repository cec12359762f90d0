// Package critools pins the versions of crictl and critest. critest is a test binary, so this file imports its dependencies.
package critools

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
