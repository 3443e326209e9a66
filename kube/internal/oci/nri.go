// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/lklrun/lklrun/internal/instance"
)

// A plugin gives stacks to pods without an OCI runtime of its own. containerd starts it
// and calls it at these moments (NRI, the node resource interface):
//
//	RunPodSandbox    ── takes the addresses from the pod's interfaces, boots the stack
//	CreateContainer  ── changes the seccomp profile: the OCI runtime sends the listener
//	                    of the container's processes to lklhost; starts the stack again
//	                    if lklhost has died
//	(lklhost dies)   ── kills the containers of the pod, see watch
//	StopPodSandbox   ── ends the stack and restores the addresses
//
// The run directories are its state, so the plug-in may be restarted at any time. If a
// stack does not start, the plug-in reports that when it is asked about a container of
// the pod: containerd 2.4 waits for a minute after an error in RunPodSandbox.
type plugin struct {
	agent *Agent // nil: containerd has started the plug-in

	mu      sync.Mutex
	failed  map[string]error  // by the name of the instance: why the stack has not started
	late    map[string]bool   // by the name of the instance: the pod has started without the plug-in, and has no container
	handled map[string]string // by the id of the pod: namespace and name of the pods with handler

	watches  map[string]*watch // by the name of the instance
	followed map[string]bool   // by the name of the instance
}

const (
	pluginName  = "lklrun"
	pluginIndex = "50" // its place among other plug-ins

	// The name of the socket tells the pods of the plug-in from those of lklrun-oci.
	pluginSocket = "nri.sock"

	handler = "lklrun" // of the RuntimeClass whose OCI runtime is lklrun-oci
)

// Plugin runs the plug-in until containerd closes the connection.
func Plugin(ctx context.Context) error { return newPlugin(nil).run(ctx) }

func newPlugin(a *Agent) *plugin {
	return &plugin{
		agent: a, failed: map[string]error{}, late: map[string]bool{}, handled: map[string]string{},
		watches: map[string]*watch{}, followed: map[string]bool{},
	}
}

// run serves one connection to containerd.
func (p *plugin) run(ctx context.Context) error {
	// No run may inherit the connection, which is an open descriptor.
	if _, err := keepFiles(); err != nil {
		return err
	}
	options := []stub.Option{
		stub.WithLogger(pluginLog{}),
		// A pod whose stack is missing must not start.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true}),
	}
	if os.Getenv(api.PluginIdxEnvVar) == "" { // not started by containerd
		options = append(options, stub.WithPluginName(pluginName), stub.WithPluginIdx(pluginIndex))
	}
	s, err := stub.New(p, options...)
	if err != nil {
		return fmt.Errorf("NRI: %w", err)
	}
	if err := s.Run(ctx); err != nil {
		return fmt.Errorf("NRI: %w", err)
	}
	return nil
}

// findMissed remembers the pods that have started without the plug-in, and have no container.
func (p *plugin) findMissed(pods []*api.PodSandbox, containers []*api.Container) {
	late := map[string]bool{}
	for _, pod := range pods {
		id := name(pod.GetId())
		if _, err := os.Lstat(filepath.Join(instance.Root(), id)); errors.Is(err, fs.ErrNotExist) {
			_, err := os.Lstat(takenFile(id))
			late[id] = errors.Is(err, fs.ErrNotExist) // otherwise, its lklhost has died
		}
	}
	for _, c := range containers {
		delete(late, name(c.GetPodSandboxId()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
}

// note remembers a pod that needs lklrun-oci for its end.
func (p *plugin) note(pod *api.PodSandbox) {
	if pod.GetRuntimeHandler() == handler {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.handled[pod.GetId()] = pod.GetNamespace() + "/" + pod.GetName()
	}
}

// RunPodSandbox starts the stack of a pod that asks for one.
func (p *plugin) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	p.note(pod)
	_ = p.tryPod(ctx, pod) // CreateContainer reports it
	return nil
}

// tryPod starts the stack of a pod that asks for one, and remembers a failure.
func (p *plugin) tryPod(ctx context.Context, pod *api.PodSandbox) error {
	err := p.runPod(ctx, pod)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed[name(pod.GetId())] = err
		return err
	}
	p.watch(ctx, name(pod.GetId()))
	return nil
}

func (p *plugin) runPod(ctx context.Context, pod *api.PodSandbox) error {
	r, err := requestOf(pod.GetAnnotations())
	if err != nil || r == nil {
		return err
	}
	r.pod = newPod(pod.GetNamespace(), pod.GetName(), pod.GetUid())
	r.cgroup = p.cgroup()
	id := name(pod.GetId())
	if err := instance.CheckName(id); err != nil {
		return fmt.Errorf("pod %q: its id is the name of the instance: %w", pod.GetId(), err)
	}
	dir := filepath.Join(instance.Root(), id)
	if _, err := os.Lstat(dir); err == nil {
		return nil // lklrun-oci has started it
	}
	netns := podNetns(pod)
	if netns == "" {
		return fmt.Errorf("annotation %s: the pod uses the host's network, which a stack does not take over", noteStack)
	}
	err = within(netns, r.addNodeSysctls)
	if err == nil {
		r.socket = pluginSocket
		err = r.startPod(ctx, netns, id, []string{pod.GetNamespace() + "/" + pod.GetName()})
	}
	if err != nil {
		// The time limit of containerd may have expired.
		return errors.Join(err, end(context.WithoutCancel(ctx), id))
	}
	return nil
}

// cgroup returns the cgroup of the stacks, or nil.
func (p *plugin) cgroup() *os.File {
	if p.agent == nil {
		return nil
	}
	return p.agent.Cgroup
}

// podNetns returns the path of the pod's network namespace, or "".
func podNetns(pod *api.PodSandbox) string {
	for _, n := range pod.GetLinux().GetNamespaces() {
		if n.GetType() == string(specs.NetworkNamespace) {
			return n.GetPath()
		}
	}
	return ""
}

// nodeSysctls are those that containerd sets in each pod. NRI does not report them.
var nodeSysctls = []string{"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range"}

// addNodeSysctls copies the sysctls that containerd has set in this thread's namespace.
func (r *request) addNodeSysctls() error {
	var settings []string
	for _, name := range nodeSysctls {
		text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if err != nil {
			return fmt.Errorf("reading the sysctls of the pod: %w", err)
		}
		settings = append(settings, name+"="+strings.Join(strings.Fields(string(text)), " "))
	}
	r.sysctls = append(settings, r.sysctls...) // later ones prevail
	return nil
}

// CreateContainer makes a container a part of its pod's stack, if the pod has one.
func (p *plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	r, err := requestOf(pod.GetAnnotations())
	if err != nil {
		return nil, nil, err
	}
	id := name(pod.GetId())
	dir := filepath.Join(instance.Root(), id)
	socket := filepath.Join(dir, pluginSocket)
	switch _, err := os.Lstat(socket); {
	case err == nil:
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("looking for the stack of the pod: %w", err)
	case r == nil:
		return nil, nil, nil
	default:
		if _, err := os.Lstat(filepath.Join(dir, socketFile)); err == nil {
			return nil, nil, nil // lklrun-oci serves the pod
		}
		if err := p.failure(id); err != nil {
			return nil, nil, err
		}
		if p.adoptMissed(id) {
			if err := p.tryPod(ctx, pod); err != nil {
				return nil, nil, err
			}
			break
		}
		name, err := restart(ctx, id, p.cgroup())
		if err != nil {
			return nil, nil, err
		}
		p.watch(ctx, id)
		if name != pluginSocket {
			return nil, nil, nil // lklrun-oci serves the pod
		}
	}
	policy, err := supervisedPolicy(c.GetLinux().GetSeccompPolicy(), socket)
	if err != nil {
		return nil, nil, err
	}
	a := &api.ContainerAdjustment{}
	a.SetLinuxSeccompPolicy(policy)
	return a, nil, nil
}

// adoptMissed reports whether the stack of a pod has not started because the plug-in did not
// run, and no container uses the network of the node's kernel. It does so once.
func (p *plugin) adoptMissed(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := p.late[id]
	delete(p.late, id)
	return late
}

// failure returns why the stack of a pod has not started, or nil.
func (p *plugin) failure(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[id]
}

// supervisedPolicy is supervised for NRI's form of a seccomp profile.
func supervisedPolicy(old *api.LinuxSeccomp, socket string) (*api.LinuxSeccomp, error) {
	var profile map[string]any
	if old != nil {
		if err := remarshal(policyOf(old), &profile); err != nil {
			return nil, fmt.Errorf("the container's seccomp profile: %w", err)
		}
	}
	profile, err := supervised(profile, socket)
	if err != nil {
		return nil, err
	}
	var policy specs.LinuxSeccomp
	if err := remarshal(profile, &policy); err != nil {
		return nil, fmt.Errorf("the container's seccomp profile: %w", err)
	}
	return api.FromOCILinuxSeccomp(&policy), nil
}

// policyOf is the reverse of api.FromOCILinuxSeccomp.
func policyOf(p *api.LinuxSeccomp) specs.LinuxSeccomp {
	policy := specs.LinuxSeccomp{
		DefaultAction: specs.LinuxSeccompAction(p.GetDefaultAction()),
		ListenerPath:  p.GetListenerPath(), ListenerMetadata: p.GetListenerMetadata(),
		Syscalls: api.ToOCILinuxSyscalls(p.GetSyscalls()),
	}
	if e := p.GetDefaultErrno(); e != nil {
		n := uint(e.GetValue())
		policy.DefaultErrnoRet = &n
	}
	for _, a := range p.GetArchitectures() {
		policy.Architectures = append(policy.Architectures, specs.Arch(a))
	}
	for _, f := range p.GetFlags() {
		policy.Flags = append(policy.Flags, specs.LinuxSeccompFlag(f))
	}
	return policy
}

// StopPodSandbox ends the stack of a pod. Its containers have ended.
func (p *plugin) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	id := name(pod.GetId())
	p.mu.Lock()
	delete(p.failed, id)
	if w := p.watches[id]; w != nil {
		clear(w.members) // they have ended
	}
	p.mu.Unlock()
	if instance.CheckName(id) != nil {
		return nil // it has no stack
	}
	return end(ctx, id)
}

// RemovePodSandbox is called instead of StopPodSandbox if a pod does not start.
func (p *plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	p.mu.Lock()
	delete(p.handled, pod.GetId())
	p.mu.Unlock()
	return p.StopPodSandbox(ctx, pod)
}

// A pluginLog writes warnings and errors of the connection to standard error.
type pluginLog struct{}

func (pluginLog) Debugf(context.Context, string, ...any) {}
func (pluginLog) Infof(context.Context, string, ...any)  {}

func (pluginLog) Warnf(_ context.Context, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "lklrun nri: "+format+"\n", args...)
}

func (l pluginLog) Errorf(ctx context.Context, format string, args ...any) {
	l.Warnf(ctx, format, args...)
}
