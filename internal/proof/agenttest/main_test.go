package agenttest

import (
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain removes client-go's error handler that limits the rate of errors. It keeps the time of the last error in a global variable; the
// clocks of bubbles differ by hours, so a reflector would sleep until the time of another bubble.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}
