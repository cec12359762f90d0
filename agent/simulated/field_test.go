package simulated

import (
	"errors"
	"testing"
	"time"
)

// An error about a fault names the field that is wrong, as data and in its text. An error that no single field explains names none.
func TestFaultsNameTheWrongField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value       interface{ Check() error }
		field, text string
	}{
		{&Fault{Delay: -1, Hang: true}, "delay", "delay: a call cannot end before it began"},
		{&Fault{Delay: time.Second, Code: "Unavailable"}, "code", "code: it is the code of an error: set the error too"},
		{&Fault{Error: "x", Code: "OK"}, "code", `code: "OK" is no code of an error of gRPC: use for example Unavailable or NotFound`},
		{&Fault{Hang: true, Chance: 2}, "chance", "chance: use a number from 0 to 1"},
		{&Fault{Hang: true, Error: "x"}, "", "a fault of the runtime hangs, fails, loses answers or loses events: choose one"},
		{&Pressure{Disk: 101}, "disk", "disk: use 0 to 100 percent"},
		{&Pressure{Processes: -1}, "processes", "processes: use 0 to 100 percent"},
		{&Pressure{}, "", "set memory, disk or processes, in percent"},
		{&DeviceFault{}, "resource", "resource: name the resource of the devices, such as example.com/gpu"},
		{&DeviceFault{Resource: "a.b/c", Unhealthy: -1}, "unhealthy", "unhealthy: the number of devices must not be negative"},
	} {
		err := c.value.Check()
		if err == nil || err.Error() != c.text {
			t.Errorf("%+v: %v, want %s", c.value, err, c.text)
			continue
		}
		field := ""
		if f, ok := errors.AsType[*FieldError](err); ok {
			field = f.Field
		}
		if field != c.field {
			t.Errorf("%+v: the error is about the field %q, want %q", c.value, field, c.field)
		}
	}
}

// Within adds the name of the part, keeps what is wrong, and makes an error out of nothing else.
func TestWithin(t *testing.T) {
	t.Parallel()
	why := errors.New("too large")
	for _, c := range []struct {
		err  error
		want string
	}{{&FieldError{"pod", why}, "exit.pod: too large"}, {why, "exit: too large"}} {
		if got := Within("exit", c.err); got.Error() != c.want || !errors.Is(got, why) {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
	if got := Within("exit", nil); got != nil {
		t.Errorf("no error became %v", got)
	}
}
