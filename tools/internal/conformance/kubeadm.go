package conformance

import (
	"context"

	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/kubeadm"
)

// registryPort is the port of the registry in the user's network namespace of a cluster that kubeadm makes.
const registryPort = 5001

// sampleAPIServer returns the image of the API server that a test aggregates. It needs etcd beside it, whose image kubeadm's cluster has.
func sampleAPIServer(bin string) (images.Image, error) {
	program, err := programs{bin}.file("sample-apiserver", "images/kubernetes", 0o755)
	return images.Image{
		Reference: e2eImages + "sample-apiserver:1.29.2", Files: []images.File{program}, Entrypoint: []string{"/sample-apiserver"}, Env: []string{images.SearchPath},
	}, err
}

// kubeadmCluster is a cluster that kubeadm makes, with a registry that its nodes reach.
type kubeadmCluster struct {
	*kubeadm.Cluster
	set        []images.Image
	registries string
	kinds      []string // of the driver examples/csi, which Up deploys
	volumes    string   // directory of their volumes
	end        func()   // ends the registry; nil: it does not run
}

// Up makes the cluster. The tests may use its first node, too.
func (k *kubeadmCluster) Up(ctx context.Context) error {
	if err := k.Cluster.Up(ctx); err != nil {
		return err
	}
	if err := k.Approve(ctx); err != nil {
		return err
	}
	listener, err := k.Listen(registryPort)
	if err != nil {
		return err
	}
	if k.end, err = serveImages(k.set, listener, k.registries); err != nil {
		return err
	}
	if _, err := k.Kubectl(ctx, "", "taint", "node", "one", "node-role.kubernetes.io/control-plane-"); err != nil {
		return err
	}
	return k.deploy(ctx)
}

func (k *kubeadmCluster) stop() {
	if k.end != nil {
		k.end()
	}
}
