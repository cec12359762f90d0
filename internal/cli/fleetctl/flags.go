package fleetctl

import (
	"errors"
	"fmt"

	"github.com/wherry-node/wherry/agent/simulated"
)

// flagsOf says which flags set the fields of a value; a field that no flag sets is not in it.
type flagsOf map[string]string

// These are the flags of the fields of fleet.Config, fleet.Fault and fleet.Selector.
var (
	configFlags = flagsOf{
		"Name": "name", "Identity": "identity", "Shard.Name": "shard", "Shard.Namespace": "shard-namespace", "Storage": "storage",
	}
	faultFlags = flagsOf{
		"for": "for", "delay": "delay", "runtime.delay": "delay", "runtime.error": "error", "runtime.code": "code", "runtime.chance": "chance",
		"pressure.memory": "memory", "pressure.disk": "disk", "pressure.processes": "processes", "devices.resource": "resource", "devices.unhealthy": "unhealthy",
		"clock.offset": "offset", "clock.drift": "drift", "exit.namespace": "pod-namespace", "exit.pod": "pod", "exit.container": "container",
		"exit.code": "exit-code", "exit.oom": "oom",
	}
	nodeFlags = flagsOf{"labels": "selector", "count": "count", "percent": "percent"}
)

// name returns the error with the name of the flag instead of that of the field which is wrong. Another error, and nil, stay as they are.
func (f flagsOf) name(err error) error {
	if wrong, ok := errors.AsType[*simulated.FieldError](err); ok && f[wrong.Field] != "" {
		return fmt.Errorf("--%s: %w", f[wrong.Field], wrong.Err)
	}
	return err
}
