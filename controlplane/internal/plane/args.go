package plane

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-node/wherry/controlplane/internal/component"
	"github.com/wherry-node/wherry/controlplane/internal/pki"
)

// credentials has the CAs, and the paths of the certificates and keys, of the control plane and its components.
type credentials struct {
	ca, frontProxyCA, etcdCA                           *pki.Authority
	apiserver, kubeletClient, frontProxyClient         pki.Pair
	etcdServer, etcdClient                             pki.Pair
	admin, controllerManager, scheduler, proxy         pki.Pair
	serviceAccountKey, serviceAccountPublic            string
	controllerManagerConfig, schedulerConfig, proxyCfg string
}

func (c *Config) credentials() (*credentials, error) {
	store := &pki.Store{
		Dir: c.path("pki"), Now: c.Now,
		AuthorityLife: 10 * 365 * 24 * time.Hour, LeafLife: 365 * 24 * time.Hour, Margin: 24 * time.Hour,
	}
	cr := &credentials{}
	for name, authority := range map[string]**pki.Authority{
		"kubernetes-ca": &cr.ca, "front-proxy-ca": &cr.frontProxyCA, "etcd-ca": &cr.etcdCA,
	} {
		a, err := store.Authority(name)
		if err != nil {
			return nil, err
		}
		*authority = a
	}
	for _, want := range c.leaves(cr) {
		pair, err := want.by.Ensure(want.leaf)
		if err != nil {
			return nil, err
		}
		*want.to = pair
	}
	var err error
	cr.serviceAccountKey, cr.serviceAccountPublic, err = store.KeyPair("service-account")
	return cr, err
}

type wantedLeaf struct {
	by   *pki.Authority
	to   *pki.Pair
	leaf pki.Leaf
}

// leaves returns the certificates that the control plane needs, with the names and groups that Kubernetes' built-in roles expect.
func (c *Config) leaves(cr *credentials) []wantedLeaf {
	loopback := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	ips := append(slices.Clone(loopback), c.serviceIP(), net.ParseIP(c.AdvertiseAddress))
	for _, name := range c.ExtraNames {
		if ip := net.ParseIP(name); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, name)
		}
	}
	masters := []string{"system:masters"}
	return []wantedLeaf{
		{cr.ca, &cr.apiserver, pki.Leaf{Name: "apiserver", CommonName: "kube-apiserver", DNSNames: names, IPs: ips, Server: true}},
		{cr.ca, &cr.kubeletClient, pki.Leaf{Name: "apiserver-kubelet-client", CommonName: "kube-apiserver-kubelet-client", Client: true}},
		{cr.frontProxyCA, &cr.frontProxyClient, pki.Leaf{Name: "front-proxy-client", CommonName: "front-proxy-client", Client: true}},
		{cr.etcdCA, &cr.etcdServer, pki.Leaf{Name: "etcd-server", CommonName: "etcd", DNSNames: names[:1], IPs: loopback, Server: true, Client: true}},
		{cr.etcdCA, &cr.etcdClient, pki.Leaf{Name: "etcd-client", CommonName: "kube-apiserver-etcd-client", Client: true}},
		{cr.ca, &cr.admin, pki.Leaf{Name: "admin", CommonName: "kubernetes-admin", Organization: masters, Client: true}},
		{cr.ca, &cr.controllerManager, pki.Leaf{Name: "controller-manager", CommonName: "system:kube-controller-manager", Client: true}},
		{cr.ca, &cr.scheduler, pki.Leaf{Name: "scheduler", CommonName: "system:kube-scheduler", Client: true}},
		{cr.ca, &cr.proxy, pki.Leaf{Name: "proxy", CommonName: "system:kube-proxy", Client: true}},
	}
}

// args returns the command-line arguments of a component: those of this package, then those of Config.ExtraArgs, which take precedence.
func (c *Config) args(name string, cr *credentials) []string {
	var own map[string]string
	switch name {
	case component.Etcd:
		own = c.etcdArgs(cr)
	case component.APIServer:
		own = c.apiserverArgs(cr)
	case component.ControllerManager:
		own = c.controllerManagerArgs(cr)
	case component.Scheduler:
		own = map[string]string{"kubeconfig": cr.schedulerConfig, "leader-elect": "false", "secure-port": "0"}
	case component.Proxy:
		own = map[string]string{"config": c.path("kube-proxy.yaml")}
	}
	var args []string
	for _, key := range slices.Sorted(maps.Keys(own)) {
		args = append(args, "--"+key+"="+own[key])
	}
	for _, extra := range c.ExtraArgs[name] {
		args = append(args, "--"+strings.TrimLeft(extra, "-"))
	}
	return args
}

func (c *Config) etcdArgs(cr *credentials) map[string]string {
	return map[string]string{
		"data-dir": c.path("etcd"), "client-port": strconv.Itoa(c.EtcdPort), "peer-port": strconv.Itoa(c.EtcdPeerPort),
		"cert-file": cr.etcdServer.Cert, "key-file": cr.etcdServer.Key, "trusted-ca-file": cr.etcdCA.Cert,
		"unsafe-no-fsync": strconv.FormatBool(!c.Fsync),
	}
}

func (c *Config) apiserverArgs(cr *credentials) map[string]string {
	args := map[string]string{
		"advertise-address":                  c.AdvertiseAddress,
		"allow-privileged":                   "true",
		"authorization-mode":                 "Node,RBAC",
		"bind-address":                       c.BindAddress,
		"client-ca-file":                     cr.ca.Cert,
		"enable-admission-plugins":           "NodeRestriction",
		"enable-bootstrap-token-auth":        "true",
		"etcd-cafile":                        cr.etcdCA.Cert,
		"etcd-certfile":                      cr.etcdClient.Cert,
		"etcd-keyfile":                       cr.etcdClient.Key,
		"etcd-servers":                       fmt.Sprintf("https://127.0.0.1:%d", c.EtcdPort),
		"kubelet-client-certificate":         cr.kubeletClient.Cert,
		"kubelet-client-key":                 cr.kubeletClient.Key,
		"kubelet-preferred-address-types":    "InternalIP,ExternalIP,Hostname",
		"proxy-client-cert-file":             cr.frontProxyClient.Cert,
		"proxy-client-key-file":              cr.frontProxyClient.Key,
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-client-ca-file":       cr.frontProxyCA.Cert,
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-username-headers":     "X-Remote-User",
		"secure-port":                        strconv.Itoa(c.SecurePort),
		"service-account-issuer":             "https://kubernetes.default.svc.cluster.local",
		"service-account-key-file":           cr.serviceAccountPublic,
		"service-account-signing-key-file":   cr.serviceAccountKey,
		"service-cluster-ip-range":           c.ServiceCIDR,
		"tls-cert-file":                      cr.apiserver.Cert,
		"tls-private-key-file":               cr.apiserver.Key,
	}
	if net.ParseIP(c.AdvertiseAddress).IsLoopback() {
		args["endpoint-reconciler-type"] = "none" // the API server refuses to publish a loopback address as an endpoint
	}
	return args
}

func (c *Config) controllerManagerArgs(cr *credentials) map[string]string {
	args := map[string]string{
		"allocate-node-cidrs":              strconv.FormatBool(c.AllocateNodeCIDRs),
		"client-ca-file":                   cr.ca.Cert,
		"cluster-cidr":                     c.ClusterCIDR,
		"cluster-name":                     "wherry",
		"cluster-signing-cert-file":        cr.ca.Cert,
		"cluster-signing-key-file":         cr.ca.Key,
		"controllers":                      "*,bootstrapsigner,tokencleaner",
		"kubeconfig":                       cr.controllerManagerConfig,
		"leader-elect":                     "false",
		"requestheader-client-ca-file":     cr.frontProxyCA.Cert,
		"root-ca-file":                     cr.ca.Cert,
		"secure-port":                      "0",
		"service-account-private-key-file": cr.serviceAccountKey,
		"service-cluster-ip-range":         c.ServiceCIDR,
		"use-service-account-credentials":  "true",
	}
	if c.SigningDuration > 0 {
		args["cluster-signing-duration"] = c.SigningDuration.String()
	}
	if c.NodeMonitorGracePeriod > 0 {
		args["node-monitor-grace-period"] = c.NodeMonitorGracePeriod.String()
	}
	return args
}
