package crispec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceEnv returns the variables by which a container finds the services "that are active when the pod is created":
// those of its namespace if links is set, and always the API server's own, default/kubernetes. Services without a
// cluster IP or ports have none.
func ServiceEnv(services []*v1.Service, namespace string, links bool) map[string]string {
	chosen := map[string]*v1.Service{}
	for _, s := range services {
		if s == nil || s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		switch {
		case s.Namespace == namespace && links:
			chosen[s.Name] = s
		case s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes":
			// A service named kubernetes in the pod's own namespace replaces the API server's.
			if _, ok := chosen[s.Name]; !ok {
				chosen[s.Name] = s
			}
		}
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(chosen)) { // in a fixed order, because two services may define the same variable
		serviceVars(out, chosen[name])
	}
	return out
}

// serviceVars adds the variables of one service.
func serviceVars(out map[string]string, s *v1.Service) {
	name, ip := envName(s.Name), s.Spec.ClusterIP
	host := ip
	if strings.Contains(ip, ":") {
		host = "[" + ip + "]"
	}
	out[name+"_SERVICE_HOST"] = ip
	out[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			out[name+"_SERVICE_PORT_"+envName(p.Name)] = port
		}
		proto := "tcp"
		if p.Protocol != "" {
			proto = strings.ToLower(string(p.Protocol))
		}
		url := proto + "://" + host + ":" + port
		if i == 0 {
			out[name+"_PORT"] = url
		}
		link := fmt.Sprintf("%s_PORT_%s_%s", name, port, strings.ToUpper(proto))
		out[link] = url
		out[link+"_PROTO"] = proto
		out[link+"_PORT"] = port
		out[link+"_ADDR"] = ip
	}
}

func envName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
