package crispec

import "fmt"

// The reasons of an Error, as they appear in waiting states and events.
const (
	// ReasonContainerConfig is the reason if the configuration of a container for the runtime cannot be made.
	ReasonContainerConfig = "CreateContainerConfigError"
	// ReasonSandboxConfig is the reason if the configuration of a sandbox for the runtime cannot be made.
	ReasonSandboxConfig = "FailedCreatePodSandBox"
)

// Error says why a message cannot be made. Reason appears in the container's waiting state or in the pod's event; Error
// returns the message. A missing object may appear, so the same input may succeed later.
type Error struct {
	Reason  string
	Message string
	Err     error // the cause; nil: there is none
}

// Error returns only the message, because reason and message always appear side by side.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func containerErr(format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: ReasonContainerConfig, Message: err.Error(), Err: err}
}

func sandboxErr(format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: ReasonSandboxConfig, Message: err.Error(), Err: err}
}
