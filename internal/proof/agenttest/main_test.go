package agenttest

import (
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// client-go's reflectors limit errors by the time of the last error, which is a variable of the whole process. The clocks of
// bubbles differ by up to hours, so a reflector would sleep for as long as the clock of another bubble is ahead.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}
