package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/source"
)

// graceFlag is --grace: -1 is the pod's own.
func graceFlag(fs *pflag.FlagSet, to *int64) {
	fs.Int64VarP(to, "grace", "t", -1, "seconds that containers get to end; -1: what the pod's manifest says")
}

func graceArg(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// settled waits until done says so of each pod, and prints its name then.
func settled(ctx context.Context, c *client, out io.Writer, pods []*v1.Pod, done func(p *v1.Pod, err error) (bool, error)) error {
	for _, p := range pods {
		for {
			now, err := c.pod(ctx, p.Namespace, p.Name)
			ok, err := done(now, err)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, plain(p.Name))
	}
	return nil
}

// gone is what rm waits for: nothing is left.
func gone(_ *v1.Pod, err error) (bool, error) {
	if isNotFound(err) {
		return true, nil
	}
	return false, err
}

// ended is what stop waits for: nothing runs.
func ended(p *v1.Pod, err error) (bool, error) {
	if err != nil {
		return gone(p, err)
	}
	return !runsAny(p) && p.DeletionTimestamp != nil, nil
}

func (r *reach) several(ctx context.Context, args []string) (*client, []*v1.Pod, error) {
	c, err := openClient(ctx, r.socket)
	if err != nil {
		return nil, nil, err
	}
	all, err := c.pods(ctx)
	if err != nil {
		return nil, nil, err
	}
	var pods []*v1.Pod
	var errs []error
	for _, arg := range args {
		p, err := findPod(all, r.namespace, arg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pods = append(pods, p)
	}
	return c, pods, errors.Join(errs...) // all or none
}

func newStop() *cobra.Command {
	var r reach
	var grace int64
	var noWait bool
	cmd := &cobra.Command{
		Use: "stop POD...", Short: "End pods and keep them, for their logs", Args: cobra.MinimumNArgs(1),
		Long: "End pods: their containers get their hooks, the signal to end and the grace period. A stopped pod stays in the list\n" +
			"and its logs can be read, until \"wherry rm\" removes it or \"wherry run\" runs it anew. It stays stopped when the\n" +
			"agent is started again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, pods, err := r.several(cmd.Context(), args)
			if err != nil {
				return err
			}
			for _, p := range pods {
				if err := c.end(cmd.Context(), p, graceArg(grace), false); err != nil {
					return err
				}
			}
			if noWait {
				return nil
			}
			return settled(cmd.Context(), c, cmd.OutOrStdout(), pods, ended)
		},
	}
	r.flags(cmd.Flags())
	graceFlag(cmd.Flags(), &grace)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return cmd
}

func newRm() *cobra.Command {
	var r reach
	var grace int64
	var noWait, force, all bool
	cmd := &cobra.Command{
		Use: "rm POD...", Short: "Remove pods without trace", Aliases: []string{"delete"},
		Long: "Remove pods that have ended or been stopped: containers, logs, volumes, and the ConfigMaps and Secrets that came with\n" +
			"them and with no other pod. A pod that runs is removed with --force only: it is ended first, with its grace period.\n" +
			"configmap/NAME and secret/NAME remove what was pushed by itself.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if all == (len(args) > 0) {
				return errors.New("name the pods to remove, or give --all")
			}
			args, objects := splitObjects(args)
			if all {
				c, err := openClient(ctx, r.socket)
				if err != nil {
					return err
				}
				pods, err := c.pods(ctx)
				if err != nil {
					return err
				}
				for i := range pods {
					if pods[i].Annotations["kubernetes.io/config.source"] == "push" && (r.namespace == "" || r.namespace == pods[i].Namespace) {
						args = append(args, pods[i].Namespace+"/"+pods[i].Name)
					}
				}
			}
			c, pods, err := r.several(ctx, args)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if err := removeObject(ctx, c, r.namespace, o); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), o)
			}
			for _, p := range pods {
				if runsAny(p) && !force {
					return fmt.Errorf("pod %s runs: stop it first (wherry stop %s), or remove it with --force", p.Name, p.Name)
				}
			}
			for _, p := range pods {
				if err := c.end(ctx, p, graceArg(grace), true); err != nil {
					return err
				}
			}
			if noWait {
				return nil
			}
			return settled(ctx, c, cmd.OutOrStdout(), pods, gone)
		},
	}
	r.flags(cmd.Flags())
	graceFlag(cmd.Flags(), &grace)
	fs := cmd.Flags()
	fs.BoolVar(&force, "force", false, "also pods that run")
	fs.BoolVarP(&all, "all", "a", false, "all pods that were pushed")
	fs.BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return cmd
}

// splitObjects takes the names of ConfigMaps and Secrets out of names of pods.
func splitObjects(args []string) (pods, objects []string) {
	for _, a := range args {
		kind, _, ok := strings.Cut(a, "/")
		if ok && (kind == "configmap" || kind == "secret") {
			objects = append(objects, a)
			continue
		}
		pods = append(pods, a)
	}
	return pods, objects
}

// removeObject removes configmap/NAME or configmap/NAMESPACE/NAME.
func removeObject(ctx context.Context, c *client, namespace, arg string) error {
	kind, name, _ := strings.Cut(arg, "/")
	if ns, n, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, n
	}
	if namespace == "" {
		namespace = v1.NamespaceDefault
	}
	return c.ask(ctx, http.MethodDelete, "/"+kind+"s/"+namespace+"/"+name, nil, nil, &source.PushAnswer{})
}
