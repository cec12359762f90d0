// Package registrar has what this module's stand-ins of CSI programs share: the registration of a driver with the node agent, and their sockets.
package registrar

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registrar answers the node agent's registration of plugins. Calls may be concurrent.
type Registrar struct {
	registration.UnimplementedRegistrationServer
	// Driver is the name of the CSI driver, and Endpoint its socket, as the node agent finds it.
	Driver, Endpoint string
	// Told is called with the outcome; message says why the node agent refused the driver.
	Told func(registered bool, message string)
}

// GetInfo tells the node agent about the driver.
func (r *Registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.Driver, Endpoint: r.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus gets the outcome.
func (r *Registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.Told(s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

// Listen listens at a Unix socket. It takes the place of a socket that an earlier process has left.
func Listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}
