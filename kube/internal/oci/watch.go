// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// The containers of a pod cannot use the network any more after their lklhost has died,
// and many would not notice. The plug-in kills them. kubelet restarts them by the policy
// of the pod, and they get a new stack (restart).

// A watch is that of the stack of a pod.
type watch struct {
	conn    *stackconn.Conn
	members map[string]member // by the ids of the containers
}

// follow ends the stack of a pod when the process of its sandbox ends. containerd does not
// call StopPodSandbox for pods that are older than containerd itself (containerd 8426).
func (p *plugin) follow(pod *api.PodSandbox) {
	id := name(pod.GetId())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.followed[id] {
		return
	}
	a, f, err := readTaken(id)
	if err != nil {
		return // it has no stack
	}
	f.Close()
	if a.Socket != pluginSocket || pod.GetPid() == 0 {
		return
	}
	fd, err := unix.PidfdOpen(int(pod.GetPid()), 0)
	if err != nil || !sameNetns(pod.GetPid(), a.Netns) {
		if err == nil {
			unix.Close(fd)
		}
		go leave(id)
		return
	}
	p.followed[id] = true
	go func() {
		defer unix.Close(fd)
		for { // without a limit: the sandbox lives as long as its pod
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
				break
			}
		}
		leave(id)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.followed, id)
	}()
}

// leave ends the stack of a pod whose sandbox has ended. The addresses return first,
// because plug-ins for networks read them soon.
func leave(id string) {
	ctx := context.Background()
	if a, f, err := readTaken(id); err == nil {
		err = a.restoreAddrs(id)
		f.Close()
		if err != nil {
			pluginLog{}.Warnf(ctx, "%v", err)
		}
	}
	if err := stop(ctx, id); err != nil {
		pluginLog{}.Warnf(ctx, "%v", err)
	}
}

// A member is a container on the stack of a pod.
type member struct {
	process *os.Process
	log     string // the file whose text kubelet reports as the reason of the end, or ""
}

// Kubernetes' default, and the annotation for another path.
const (
	terminationLog  = "/dev/termination-log"
	noteTermination = "io.kubernetes.container.terminationMessagePath"
)

// Synchronize learns the pods that are older than the connection.
func (p *plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	p.findMissed(pods, containers)
	byID := map[string]*api.PodSandbox{}
	names := map[string]bool{}
	for _, pod := range pods {
		byID[pod.GetId()], names[name(pod.GetId())] = pod, true
		p.note(pod)
		p.watch(ctx, name(pod.GetId()))
		p.follow(pod)
	}
	for _, id := range takenBy(pluginSocket) {
		if !names[id] {
			go leave(id)
		}
	}
	for _, c := range containers {
		if pod := byID[c.GetPodSandboxId()]; pod != nil && c.GetState() == api.ContainerState_CONTAINER_RUNNING {
			p.enrol(pod, c)
		}
	}
	dropTaken()
	if p.agent == nil {
		return nil, nil
	}
	p.agent.connected()
	return nil, p.agent.Connected()
}

// PostStartContainer is called after a container has started.
func (p *plugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.enrol(pod, c)
	return nil
}

// watch waits in the background for the end of a pod's stack, if the pod has one.
func (p *plugin) watch(ctx context.Context, id string) {
	if instance.CheckName(id) != nil {
		return
	}
	c, err := dial(ctx, id)
	if err != nil {
		return // it has no stack, or enrol notices that it has none any more
	}
	w := &watch{c, map[string]member{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.watches[id]; old != nil && old.conn.Err() == nil {
		c.Close()
		return
	}
	p.watches[id] = w
	go func() {
		<-c.Done()
		p.mu.Lock()
		if p.watches[id] == w {
			delete(p.watches, id)
		}
		members := w.members
		p.mu.Unlock()
		for _, m := range members {
			m.kill(id)
		}
	}()
}

// RemoveContainer is called when a container is removed.
func (p *plugin) RemoveContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.watches[name(pod.GetId())]; w != nil {
		delete(w.members, c.GetId())
	}
	return nil
}

// enrol adds a container to those that end with their stack. The stack may have ended
// already.
func (p *plugin) enrol(pod *api.PodSandbox, c *api.Container) {
	id := name(pod.GetId())
	if instance.CheckName(id) != nil {
		return
	}
	m, err := newMember(podNetns(pod), c)
	if err != nil {
		return // it has ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.watches[id]; w != nil && w.conn.Err() == nil {
		w.members[c.GetId()] = m
		return
	}
	if _, err := os.Lstat(takenFile(id)); err == nil {
		go m.kill(id)
	}
}

// newMember fails if the process is not in the pod's network namespace: its number may be
// that of another process by now.
func newMember(netns string, c *api.Container) (m member, err error) {
	if m.process, err = os.FindProcess(int(c.GetPid())); err != nil {
		return m, err
	}
	if !sameNetns(c.GetPid(), netns) {
		return m, fmt.Errorf("process %d is not in the network namespace of the pod", c.GetPid())
	}
	path := terminationLog
	if other := c.GetAnnotations()[noteTermination]; other != "" {
		path = filepath.Join("/", other)
	}
	for _, mount := range c.GetMounts() {
		if mount.GetDestination() == path {
			m.log = mount.GetSource()
		}
	}
	return m, nil
}

func sameNetns(pid uint32, netns string) bool {
	have, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	want, err := os.Stat(netns)
	return err == nil && os.SameFile(have, want)
}

// kill ends a container whose stack has ended, and writes the reason.
func (m member) kill(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	_ = waitEnd(ctx, id) // a new stack cannot start earlier
	if m.process.Signal(unix.Signal(0)) != nil {
		return // it has ended
	}
	if m.log != "" {
		m.explain(id)
	}
	_ = m.process.Kill() // fails if it has ended
}

// explain writes why the container ends, for its status. The container has written to this
// file before, but cannot replace it.
func (m member) explain(id string) {
	f, err := os.OpenFile(m.log, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the reason is missing, but the container still ends
	}
	defer f.Close()
	fmt.Fprint(f, "lklrun: the network stack of the pod has ended")
	if why := endReason(id); why != "" {
		fmt.Fprint(f, ": ", why)
	}
	fmt.Fprintln(f)
}
