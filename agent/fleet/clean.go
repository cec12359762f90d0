package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// deletions is how many objects are deleted at the same time.
const deletions = 16

// Removed says what Clean has removed.
type Removed struct {
	Nodes, Pods int
	// Unchecked names the kinds of objects that the user may not delete, so that objects of a fleet with certificates or storage may be left.
	Unchecked string
}

// Clean removes everything that a fleet left in a cluster: its Nodes, their leases, the pods on them, the pods that the fleet
// created, if its nodes had certificates, its bootstrap token, bindings and certificate requests, and with Config.Storage, its storage classes
// and CSI drivers, and the resource slices of the Nodes. name is the fleet's name; "": all
// fleets. The fleet must not run: see CheckEnded. After an error Clean continues with the next object; it returns all errors, joined.
func Clean(ctx context.Context, client *rest.Config, name string) (Removed, error) {
	api, err := newClient(client, nil)
	if err != nil {
		return Removed{}, err
	}
	done, err := clean(ctx, api, selectorOf(name), nil)
	for _, k := range slices.Concat(accessKinds, storageKinds, sliceKinds) {
		switch kindErr := k.removeAll(ctx, api, selectorOf(name)); {
		case apierrors.IsForbidden(kindErr):
			if done.Unchecked != "" {
				done.Unchecked += ", "
			}
			done.Unchecked += k.name
		default:
			err = errors.Join(err, kindErr)
		}
	}
	return done, err
}

// CleanShards deletes the leases of a fleet that several processes shared; Clean removes the nodes. name is the fleet's name; "": all fleets. namespace
// is that of the leases; "kube-system" when empty. It returns an error, and deletes nothing, if a process of the fleet renewed its lease recently.
func CleanShards(ctx context.Context, client *rest.Config, namespace, name string) error {
	api, err := newClient(client, nil)
	if err != nil {
		return err
	}
	leases := api.Leases(cmp.Or(namespace, metav1.NamespaceSystem))
	got, err := leases.List(ctx, metav1.ListOptions{LabelSelector: selectorOf(name) + "," + LabelLease})
	if apierrors.IsForbidden(err) && namespace == "" { // a user who may not read them there has not shared a fleet there
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the leases of the fleet: %w", err)
	}
	for i := range got.Items {
		l := &got.Items[i]
		if holderOf(l) == "" || l.Spec.RenewTime == nil {
			continue
		}
		if age := time.Since(l.Spec.RenewTime.Time); age < shardDuration {
			return fmt.Errorf("the fleet %s runs: %s renewed the lease %s %s ago: end its processes first, or wait %s if they were killed",
				l.Labels[LabelFleet], holderOf(l), l.Name, age.Round(time.Second), shardDuration)
		}
	}
	var errs []error
	for i := range got.Items {
		if err := leases.Delete(ctx, got.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func selectorOf(name string) string {
	if name == "" {
		return LabelFleet
	}
	return LabelFleet + "=" + name
}

// clean removes the Nodes that the label selector matches, their leases, the pods on them, and all other pods that the selector matches.
// If only is not nil, clean removes just the Nodes with these names, with their leases and pods.
func clean(ctx context.Context, api *kubeclient.Client, selector string, only map[string]bool) (Removed, error) {
	var (
		mu   sync.Mutex
		errs []error
		done Removed
	)
	try := func(count *int, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			*count++
		case !apierrors.IsNotFound(err):
			errs = append(errs, err)
		}
	}
	nodes := map[string]bool{}
	var names []string
	err := eachPage(func(opts metav1.ListOptions) (string, error) {
		opts.LabelSelector = selector
		list, err := api.Nodes().List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the nodes of the fleet: %w", err)
		}
		for i := range list.Items {
			if n := list.Items[i].Name; only == nil || only[n] {
				names, nodes[n] = append(names, n), true
			}
		}
		return list.Continue, nil
	})
	if err != nil {
		return done, err
	}
	leases := 0
	limited(names, deletions, func(name string) {
		try(&done.Nodes, api.Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
		try(&leases, api.Leases(v1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{}))
	})
	pods, err := podsOf(ctx, api, selector, nodes, only == nil)
	if err != nil {
		errs = append(errs, err)
	}
	now := int64(0) // the grace period in seconds: nothing runs on these nodes any more, so no pod needs time to end
	limited(pods, deletions, func(p podName) {
		opts := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(p.uid)}
		try(&done.Pods, api.Pods(p.namespace).Delete(ctx, p.name, opts))
	})
	return done, errors.Join(errs...)
}

// podName identifies a pod.
type podName struct{ namespace, name, uid string }

// podsOf returns the pods that are bound to the nodes. If created is true, it also returns all other pods that the selector matches:
// these are pods that the fleet created.
func podsOf(ctx context.Context, api *kubeclient.Client, selector string, nodes map[string]bool, created bool) (pods []podName, err error) {
	take := func(which metav1.ListOptions, belongs func(*v1.Pod) bool) error {
		return eachPage(func(opts metav1.ListOptions) (string, error) {
			opts.LabelSelector, opts.FieldSelector = which.LabelSelector, which.FieldSelector
			list, err := api.Pods(metav1.NamespaceAll).List(ctx, opts)
			if err != nil {
				return "", fmt.Errorf("list the pods of the fleet: %w", err)
			}
			for i := range list.Items {
				if p := &list.Items[i]; belongs(p) {
					pods = append(pods, podName{p.Namespace, p.Name, string(p.UID)})
				}
			}
			return list.Continue, nil
		})
	}
	if len(nodes) > 0 {
		err = take(metav1.ListOptions{FieldSelector: bound}, func(p *v1.Pod) bool { return nodes[p.Spec.NodeName] })
	}
	if created {
		err = errors.Join(err, take(metav1.ListOptions{LabelSelector: selector}, func(p *v1.Pod) bool { return !nodes[p.Spec.NodeName] }))
	}
	return pods, err
}

// maxPages is the maximum number of pages that eachPage reads of one list.
const maxPages = 2000

// eachPage calls list once for each page of a list. list returns the continue token of the next page, or "" after the last.
func eachPage(list func(metav1.ListOptions) (next string, err error)) error {
	opts := metav1.ListOptions{Limit: kubeclient.PageSize}
	for range maxPages {
		next, err := list(opts)
		if err != nil || next == "" {
			return err
		}
		opts.Continue = next
	}
	return fmt.Errorf("a list has more than %d pages", maxPages)
}
