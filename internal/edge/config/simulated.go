package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// simulatedScheme selects Wherry's runtime in memory: --container-runtime-endpoint=simulated://
const simulatedScheme = "simulated://"

// SimulatedNode is the size of a simulated machine.
type SimulatedNode struct {
	CPU    resource.Quantity
	Memory resource.Quantity
	Pods   int32
}

// parseSimulated reads simulated://?cpu=8&memory=16Gi&pods=50. The defaults are 100 CPUs, 32Gi and maxPods.
func parseSimulated(endpoint string, maxPods int32) (*SimulatedNode, error) {
	if !strings.HasPrefix(endpoint, simulatedScheme) {
		return nil, nil
	}
	bad := func(format string, args ...any) error {
		return &fieldError{"containerRuntimeEndpoint", fmt.Sprintf("containerRuntimeEndpoint (--container-runtime-endpoint): %q: %s: write simulated://?cpu=100&memory=32Gi&pods=110",
			endpoint, fmt.Sprintf(format, args...))}
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, bad("%v", err)
	}
	if u.Host != "" || strings.Trim(u.Path, "/") != "" {
		return nil, bad("nothing may stand between :// and the question mark")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("%v", err)
	}
	n := &SimulatedNode{CPU: resource.MustParse("100"), Memory: resource.MustParse("32Gi"), Pods: maxPods}
	for key, values := range query {
		value := values[len(values)-1]
		var err error
		switch key {
		case "cpu":
			n.CPU, err = positiveQuantity(value)
		case "memory":
			n.Memory, err = positiveQuantity(value)
		case "pods":
			var pods int64
			pods, err = strconv.ParseInt(value, 10, 32)
			if err == nil && pods < 0 {
				err = fmt.Errorf("must not be negative")
			}
			n.Pods = int32(pods)
		default:
			return nil, bad("%q is not known (cpu, memory, pods are)", key)
		}
		if err != nil {
			return nil, bad("%s=%s: %v", key, value, err)
		}
	}
	return n, nil
}

// keepInRoot moves the default directories for certificates and logs of a simulated node into its root directory, because several
// simulated nodes, and a real one, may run on the same machine. Directories that the user has configured stay where they are.
func (c *Config) keepInRoot() {
	if c.Simulated == nil || c.RootDir == "" {
		return
	}
	if filepath.Clean(c.CertDir) == defaultCertDir {
		c.CertDir = c.inRoot("pki")
	}
	if filepath.Clean(c.Kubelet.PodLogsDir) == defaultPodLogsDir {
		c.Kubelet.PodLogsDir = c.inRoot("logs")
	}
}

// inRoot joins name to the root directory. The path is absolute, unless the process has no working directory.
func (c *Config) inRoot(name string) string {
	path := filepath.Join(c.RootDir, name)
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

func positiveQuantity(s string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(s)
	if err == nil && q.Sign() <= 0 {
		err = fmt.Errorf("must be greater than zero")
	}
	return q, err
}
