// Command staticpod creates the mirror of a static pod by hand: it turns a manifest into a pod of the node, and creates the pod's mirror in
// the API. kubectl get pod shows the mirror as Pending, because no agent runs the pod. kubectl delete --force removes it.
//
//	go run ./examples/labs/staticpod -kubeconfig .wherry/admin.kubeconfig -node NODE
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/examples/labs/lab"
	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "cluster; without it an API server in memory")
	node := flag.String("node", "myjtthink", "the node")
	lab.Main(func(ctx context.Context) error {
		client, _, err := lab.Client(*kubeconfig)
		if err != nil {
			return err
		}
		return run(ctx, os.Stdout, client, *node)
	})
}

const mystatic = `
apiVersion: v1
kind: Pod
metadata: {name: kube-mystatic}
spec:
  containers: [{name: main, image: nginx}]
`

func run(ctx context.Context, out io.Writer, client kubernetes.Interface, node string) error {
	m := manifest.Decode("mystatic.yaml", []byte(mystatic))
	if err := m.Err(); err != nil {
		return err
	}
	p := manifest.Origin{Source: pod.SourceFile, Name: "mystatic.yaml", NodeName: node, Seen: time.Now()}.Static(m.Pods[0])
	mirror := p.DeepCopy()
	mirror.UID = "" // the API server gives the mirror another UID
	mirror.Annotations[pod.AnnotationMirror] = mirror.Annotations[pod.AnnotationHash]
	got, err := client.CoreV1().Pods(mirror.Namespace).Create(ctx, mirror, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the mirror: %w", err)
	}
	fmt.Fprintf(out, "%-30s%-8s%s\n%-30s%-8s%s\n", "NAME", "READY", "STATUS", got.Name, fmt.Sprintf("0/%d", len(got.Spec.Containers)), got.Status.Phase)
	return nil
}
