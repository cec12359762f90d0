package agenttest

import (
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// client-go's reflectors pass what fails through a brake that keeps the time of the last error for the whole process. The
// bubbles' clocks are apart by up to hours, and the brake sleeps for as long as another bubble is ahead.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}
