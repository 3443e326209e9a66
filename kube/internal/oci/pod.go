// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lklrun/lklrun/internal/instance"
)

// Annotations that containerd gives to the containers of a pod. The first container of a
// pod is its sandbox: it holds the network namespace. lklrun-oci boots the stack with the
// sandbox, and the other containers use this stack.
const (
	criPrefix     = "io.kubernetes.cri."
	noteKind      = criPrefix + "container-type"
	noteSandbox   = criPrefix + "sandbox-id"
	kindContainer = "container"

	notePodSpace = criPrefix + "sandbox-namespace"
	notePod      = criPrefix + "sandbox-name"
	notePodUID   = criPrefix + "sandbox-uid"
)

// newPod returns nil if the names are not known.
func newPod(namespace, name, uid string) *instance.Pod {
	if namespace == "" || name == "" {
		return nil
	}
	return &instance.Pod{Namespace: namespace, Name: name, UID: uid}
}

func errEnded(id string) error {
	return fmt.Errorf("the stack of the pod has ended (instance %s); delete the pod", id)
}

// sandbox returns the id of the sandbox whose network the container shares, or "".
func (s *spec) sandbox(c commandLine) (string, error) {
	notes := s.notes(c)
	if notes[noteKind] != kindContainer {
		return "", nil
	}
	id := notes[noteSandbox]
	if id == "" {
		return "", fmt.Errorf("annotation %s: missing, although %s is %s", noteSandbox, noteKind, kindContainer)
	}
	return id, nil
}

// join makes the container a part of its pod's stack, and returns whether the pod has one.
// The network namespace of such a pod has no addresses, so the container's own annotations
// do not matter. r is the container's request, or nil.
func (s *spec) join(ctx context.Context, sandbox string, r *request) (bool, error) {
	id := name(sandbox)
	if err := instance.CheckName(id); err != nil {
		return false, fmt.Errorf("annotation %s=%q: the id is the name of the instance: %w", noteSandbox, sandbox, err)
	}
	dir := filepath.Join(instance.Root(), id)
	switch _, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist) && r == nil:
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		if _, err := restart(ctx, id, nil); err != nil {
			return false, err
		}
	case err != nil:
		return false, fmt.Errorf("looking for the stack of the pod: %w", err)
	}
	if err := s.supervise(filepath.Join(dir, socketFile)); err != nil {
		return false, err
	}
	return true, s.write()
}

// startPod starts a run that does not end with the pod's processes. netns is the network
// namespace of the pod.
func (r *request) startPod(ctx context.Context, netns, id string, command []string) error {
	waits, creating, err := os.Pipe() // see Hold
	if err != nil {
		return fmt.Errorf("creating a pipe: %w", err)
	}
	defer creating.Close()
	err = within(netns, func() error { return r.start(ctx, netns, id, command, waits) })
	waits.Close()
	if err == nil {
		err = serve(ctx, id, filepath.Join(instance.Root(), id, r.socket), netns, true)
	}
	if err == nil {
		_, err = creating.WriteString(netns + "\n")
	}
	return err
}

// restart starts the stack of a pod again, with the same addresses and settings, after its
// lklhost has died. Otherwise each new container of the pod would fail until somebody
// deletes the pod. Older containers remain without network. The stack starts in cgroup, if
// it is not nil. restart returns the name of the socket in the run directory.
func restart(ctx context.Context, id string, cgroup *os.File) (socket string, err error) {
	a, f, err := readTaken(id)
	if errors.Is(err, errNotTaken) {
		return "", errEnded(id)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := os.Lstat(filepath.Join(instance.Root(), id)); err == nil {
		return a.Socket, nil // started for another container meanwhile
	}
	r := &request{stack: a.Stack, interfaces: a.Interfaces, sysctls: a.Sysctls, pod: a.Pod, socket: a.Socket, cgroup: cgroup}
	if err := r.startPod(ctx, a.Netns, id, a.Command); err != nil {
		// The addresses do not return, so the next container may try again.
		return "", errors.Join(fmt.Errorf("starting the stack of the pod again: %w", err), stop(context.WithoutCancel(ctx), id))
	}
	return a.Socket, nil
}
