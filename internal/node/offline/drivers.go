package offline

import (
	"context"
	"sync"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/csinode"
)

// DriverList is the list of the node's CSI drivers in the API. Its methods are never called concurrently.
type DriverList interface {
	Put(ctx context.Context, d csinode.Driver) error
	Remove(ctx context.Context, driver string) error
}

// Drivers returns a list of CSI drivers to which drivers can be added while the node is offline. The list in the API is changed when
// the API server answers.
func (k *Keeper) Drivers(api DriverList) DriverList {
	k.drivers.api = api
	return &k.drivers
}

// keptDrivers holds the changes to the list of CSI drivers that have not been sent to the API server yet.
type keptDrivers struct {
	api     DriverList // nil: the node has no CSI drivers
	calling sync.Mutex // held during each call of api

	mu      sync.Mutex
	offline bool
	owed    map[string]*csinode.Driver // the stored changes, by the driver's name; a nil driver is to be removed
}

// owe stores a change if the node is offline. It reports whether it has stored the change.
func (d *keptDrivers) owe(name string, driver *csinode.Driver) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.offline {
		delete(d.owed, name) // the caller sends a newer change itself
		return false
	}
	if d.owed == nil {
		d.owed = map[string]*csinode.Driver{}
	}
	d.owed[name] = driver
	return true
}

// Put adds a driver to the list.
func (d *keptDrivers) Put(ctx context.Context, driver csinode.Driver) error {
	if d.owe(driver.Name, &driver) {
		return nil
	}
	d.calling.Lock()
	defer d.calling.Unlock()
	return d.api.Put(ctx, driver)
}

// Remove removes a driver from the list.
func (d *keptDrivers) Remove(ctx context.Context, name string) error {
	if d.owe(name, nil) {
		return nil
	}
	d.calling.Lock()
	defer d.calling.Unlock()
	return d.api.Remove(ctx, name)
}

func (d *keptDrivers) setOffline(offline bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.offline = offline
}

// next returns one of the stored changes; ok is false if there is none.
func (d *keptDrivers) next() (name string, driver *csinode.Driver, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, driver := range d.owed {
		return name, driver, true
	}
	return "", nil, false
}

// settle sends the stored changes to the API server. It retries until all are sent or ctx ends.
func (d *keptDrivers) settle(ctx context.Context) {
	for {
		name, driver, ok := d.next()
		if !ok {
			return
		}
		if err := d.change(ctx, name, driver); err != nil && !kubeclient.Pause(ctx, writeEvery) {
			return
		}
	}
}

// change sends one stored change to the API server, unless a newer change of the same driver has replaced it.
func (d *keptDrivers) change(ctx context.Context, name string, driver *csinode.Driver) (err error) {
	d.calling.Lock()
	defer d.calling.Unlock()
	d.mu.Lock()
	now, still := d.owed[name]
	d.mu.Unlock()
	if !still || now != driver {
		return nil
	}
	if driver != nil {
		err = d.api.Put(ctx, *driver)
	} else {
		err = d.api.Remove(ctx, name)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owed[name] == driver {
		delete(d.owed, name)
	}
	return nil
}
