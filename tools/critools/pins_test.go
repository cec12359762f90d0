// Package critools pins crictl and critest; critest is a test binary, so its imports are named here.
package critools

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
