package csispec

import (
	"errors"
	"fmt"
)

// Code is a status code of gRPC.
type Code uint32

// The status codes that the agent distinguishes.
const (
	CodeCanceled           Code = 1
	codeUnknown            Code = 2
	codeInvalidArgument    Code = 3
	CodeDeadlineExceeded   Code = 4
	codeNotFound           Code = 5
	CodeResourceExhausted  Code = 8
	codeFailedPrecondition Code = 9
	codeAborted            Code = 10
	codeOutOfRange         Code = 11
	codeUnavailable        Code = 14
)

// CallError is the error of a failed gRPC call to a CSI driver.
type CallError struct {
	Driver, Method string
	// Code is the driver's code, or DeadlineExceeded if the driver did not answer in time.
	Code Code
	// Text is what the driver says, or that it did not answer. It is short and printable.
	Text string
}

// Error names the driver and the call.
func (e *CallError) Error() string {
	return fmt.Sprintf("CSI driver %s, %s: %s", e.Driver, e.Method, e.Text)
}

// codeOf returns the code of the CallError that err wraps. ok is false if err wraps none.
func codeOf(err error) (code Code, ok bool) {
	var call *CallError
	if !errors.As(err, &call) {
		return codeUnknown, false
	}
	return call.Code, true
}

// Final reports whether err shows that the driver no longer works on the failed call. After any other error the driver may still be at
// work.
func Final(err error) bool {
	code, ok := codeOf(err)
	if !ok {
		return false
	}
	switch code {
	case CodeCanceled, CodeDeadlineExceeded, codeUnavailable, CodeResourceExhausted, codeAborted:
		return false
	}
	return true
}

// Infeasible reports whether err shows that a retry of the same call cannot succeed: the arguments are wrong, or the volume does not exist.
func Infeasible(err error) bool {
	code, ok := codeOf(err)
	return ok && (code == codeInvalidArgument || code == codeOutOfRange || code == codeNotFound)
}

// InUse reports whether err says that the driver cannot do the call while the volume is in use.
func InUse(err error) bool {
	code, ok := codeOf(err)
	return ok && code == codeFailedPrecondition
}
