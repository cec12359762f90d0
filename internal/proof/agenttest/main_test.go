package agenttest

import (
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain removes client-go's limit on errors of reflectors. The limit uses the time of the last error, which is a global
// variable. The clocks of bubbles differ by hours, so a reflector would sleep for as long as the clock of another bubble is
// ahead.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}
