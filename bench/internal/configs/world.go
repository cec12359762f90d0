package configs

import (
	"encoding/hex"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These names appear in the objects of World and in the pods.
const (
	nodeName  = "node-1"
	namespace = "shop"
	hostIP    = "192.0.2.10"
	podIP     = "198.51.100.7"
	// handler is the runtime handler of the RuntimeClass "special". It supports user namespaces and recursive read-only mounts, as the
	// default handler does. plainHandler supports neither.
	handler, plainHandler = "special", "plain"
)

// World describes the node on which both agents run: what an agent reads besides the pod.
type World struct {
	// Dir is the directory in which each agent has a subdirectory for its files.
	Dir string
	// SeccompDefault, CPUQuota and LimitedSwap are settings of the kubelet (seccompDefault, cpuCFSQuota, memorySwap).
	SeccompDefault, CPUQuota, LimitedSwap bool
	// Memory and Swap are the sizes of the machine's memory and swap space, in bytes.
	Memory, Swap int64
}

// NewWorld returns a World with upstream's default settings, 16 GiB of memory and no swap.
func NewWorld(dir string) World {
	return World{Dir: dir, CPUQuota: true, Memory: 16 << 30}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func (w World) node() *v1.Node {
	allocatable := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("7500m"), v1.ResourceMemory: resource.MustParse("15Gi"), v1.ResourcePods: resource.MustParse("110"),
		v1.ResourceEphemeralStorage: resource.MustParse("90Gi"), "hugepages-2Mi": resource.MustParse("1Gi"),
	}
	n := &v1.Node{ObjectMeta: meta("", nodeName)}
	n.Status = v1.NodeStatus{Allocatable: allocatable, Capacity: allocatable,
		Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: hostIP}, {Type: v1.NodeHostName, Address: nodeName}}}
	return n
}

func configMaps() []*v1.ConfigMap {
	return []*v1.ConfigMap{{ObjectMeta: meta(namespace, "settings"), Data: map[string]string{
		"colour": "blue", "size": "10", "not a name": "kept out of no environment", "dotted.key": "value", "empty": ""}}}
}

func secrets() []*v1.Secret {
	return []*v1.Secret{{ObjectMeta: meta(namespace, "passwords"), Data: map[string][]byte{"user": []byte("root"), "key-file": []byte("line\nline")}}}
}

func services() []*v1.Service {
	service := func(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
		return &v1.Service{ObjectMeta: meta(namespace, name), Spec: v1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: ports}}
	}
	return []*v1.Service{
		service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}),
		service(namespace, "front-end", "10.96.0.20", v1.ServicePort{Name: "http-web", Port: 80, Protocol: v1.ProtocolTCP},
			v1.ServicePort{Name: "names", Port: 53, Protocol: v1.ProtocolUDP}),
		service(namespace, "six", "fd00::20", v1.ServicePort{Port: 8080, Protocol: v1.ProtocolTCP}),
		service(namespace, "headless", "None", v1.ServicePort{Port: 80, Protocol: v1.ProtocolTCP}),
		service(namespace, "kubernetes", "10.96.0.66", v1.ServicePort{Port: 80, Protocol: v1.ProtocolTCP}),
		service("elsewhere", "hidden", "10.96.0.30", v1.ServicePort{Port: 80, Protocol: v1.ProtocolTCP}),
	}
}

func runtimeClasses() []*nodev1.RuntimeClass {
	return []*nodev1.RuntimeClass{{ObjectMeta: meta("", "special"), Handler: handler}, {ObjectMeta: meta("", "plain"), Handler: plainHandler}}
}

func handlers() []*runtimeapi.RuntimeHandler {
	all := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}
	return []*runtimeapi.RuntimeHandler{{Name: "", Features: all}, {Name: handler, Features: all}, {Name: plainHandler}}
}

// These are the images that a pod may use. Each name says which user the image sets, or what the image is for.
const (
	imageWeb     = "registry.example/web:1"
	imageOfUID   = "registry.example/uid-1234:1"
	imageOfName  = "registry.example/name-app:1"
	imageOfFiles = "registry.example/files@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// envFile is the name of a file in each emptyDir, and envFileText is its content. Variables can come from it (env[].valueFrom.fileKeyRef).
const (
	envFile     = "vars.env"
	envFileText = "FIRST=one\nSECOND='two words'\n"
)

// imageOf returns the runtime's description of an image. Every image exists.
func imageOf(name string) *runtimeapi.Image {
	if id, ok := strings.CutPrefix(name, "sha256:"); ok {
		if plain, err := hex.DecodeString(id); err == nil {
			name = string(plain)
		}
	}
	i := &runtimeapi.Image{Id: "sha256:" + hex.EncodeToString([]byte(name)), RepoTags: []string{name}, Size: 1000, Spec: &runtimeapi.ImageSpec{Image: name}}
	switch {
	case strings.Contains(name, "uid-"):
		i.Uid = &runtimeapi.Int64Value{Value: 1234}
	case strings.Contains(name, "name-"):
		i.Username = "app"
	default:
		i.Uid = &runtimeapi.Int64Value{}
	}
	return i
}
