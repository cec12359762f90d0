package plane

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// These names are the same as kubeadm's, because nodes, documentation and scripts refer to them.
const (
	bootstrappers   = "system:bootstrappers:kubeadm:default-node-token"
	clusterInfoName = "cluster-info"
	clusterInfoRole = "kubeadm:bootstrap-signer-clusterinfo"
)

// clusterBinding describes a ClusterRoleBinding. approval is true if it is only needed for Config.AutoApprove.
type clusterBinding struct {
	name, role string
	subject    rbacv1.Subject
	approval   bool
}

func clusterBindings() []clusterBinding {
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
	}
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
	}
	const csr = "system:certificates.k8s.io:certificatesigningrequests:"
	return []clusterBinding{
		{"kubeadm:kubelet-bootstrap", "system:node-bootstrapper", group(bootstrappers), false},
		{"kubeadm:get-nodes", "kubeadm:get-nodes", group(bootstrappers), false},
		{"kubeadm:node-autoapprove-bootstrap", csr + "nodeclient", group(bootstrappers), true},
		{"kubeadm:node-autoapprove-certificate-rotation", csr + "selfnodeclient", group("system:nodes"), true},
		{"kubeadm:apiserver-kubelet-client", "system:kubelet-api-admin", user("kube-apiserver-kubelet-client"), false},
	}
}

// install creates the objects with which nodes can join. It may be repeated.
func (c *Config) install(ctx context.Context, client kubernetes.Interface, ca []byte) error {
	getNodes := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:get-nodes"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
	}
	roles := client.RbacV1().ClusterRoles()
	if err := put(ctx, getNodes, roles.Create, roles.Update); err != nil {
		return err
	}
	bindings := client.RbacV1().ClusterRoleBindings()
	for _, b := range clusterBindings() {
		if b.approval && !c.AutoApprove {
			if err := bindings.Delete(ctx, b.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete cluster role binding %s: %w", b.name, err)
			}
			continue
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: b.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{b.subject},
		}
		if err := put(ctx, binding, bindings.Create, bindings.Update); err != nil {
			return err
		}
	}
	if err := c.installToken(ctx, client); err != nil {
		return err
	}
	return c.installClusterInfo(ctx, client, ca)
}

func (c *Config) installToken(ctx context.Context, client kubernetes.Interface) error {
	id, secret, _ := strings.Cut(c.BootstrapToken, ".")
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	return put(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret,
			"description":                    "for nodes that join the development control plane",
			"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
			"auth-extra-groups": bootstrappers,
		},
	}, secrets.Create, secrets.Update)
}

func (c *Config) installClusterInfo(ctx context.Context, client kubernetes.Interface, ca []byte) error {
	info, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
		"": {Server: c.nodeServer(), CertificateAuthorityData: ca},
	}})
	if err != nil {
		return fmt.Errorf("encode cluster-info: %w", err)
	}
	maps := client.CoreV1().ConfigMaps(metav1.NamespacePublic)
	old, err := maps.Get(ctx, clusterInfoName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get config map %s: %w", clusterInfoName, err)
	}
	if err != nil || old.Data["kubeconfig"] != string(info) { // only the key kubeconfig is compared, because the bootstrap signer adds keys of its own
		if err := put(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: clusterInfoName, Namespace: metav1.NamespacePublic},
			Data:       map[string]string{"kubeconfig": string(info)},
		}, maps.Create, maps.Update); err != nil {
			return err
		}
	}
	roles := client.RbacV1().Roles(metav1.NamespacePublic)
	if err := put(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: clusterInfoRole, Namespace: metav1.NamespacePublic},
		Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{clusterInfoName},
		}},
	}, roles.Create, roles.Update); err != nil {
		return err
	}
	bindings := client.RbacV1().RoleBindings(metav1.NamespacePublic)
	return put(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clusterInfoRole, Namespace: metav1.NamespacePublic},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: clusterInfoRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:anonymous"}},
	}, bindings.Create, bindings.Update)
}

// put creates an object; if one with its name exists, put replaces it.
func put[T metav1.Object](
	ctx context.Context, object T,
	create func(context.Context, T, metav1.CreateOptions) (T, error),
	update func(context.Context, T, metav1.UpdateOptions) (T, error),
) error {
	_, err := create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("install %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// poll calls f repeatedly until it returns nil. If ctx ends before that, poll returns the last error of f.
func poll(ctx context.Context, every time.Duration, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-time.After(every):
		}
	}
}
