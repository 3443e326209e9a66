// SPDX-License-Identifier: Apache-2.0

// Package sysctl reads and writes many of a stack's settings at once. It supports trees
// and patterns, files in the format of sysctl.conf(5), and changes that are made either
// completely or not at all. internal/stack/stacknet handles single settings.
package sysctl

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Setting is a key, with dots, and its value.
type Setting struct{ Key, Value string }

// Below reads all settings below a directory key for which keep returns true. An empty
// key means all settings; a nil keep selects each. Below omits settings that can never be
// read, as sysctl(8) -a does.
func Below(ctx context.Context, c *stackconn.Conn, key string, keep func(string) bool) ([]Setting, error) {
	keys, err := Keys(ctx, c, key)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(k string) bool { return keep != nil && !keep(k) })
	read := make([]Setting, len(keys))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for n, k := range keys {
		g.Go(func() error {
			value, err := stacknet.GetSysctl(ctx, c, k)
			var no syscall.Errno
			if errors.As(err, &no) { // EACCES, EIO and others: the setting is write-only, or for missing hardware
				return nil
			}
			read[n] = Setting{k, value}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(read, func(s Setting) bool { return s.Key == "" }), nil
}

// atOnce is the number of settings that are read in parallel. Each read takes a few
// calls, and the stack may be on a distant machine.
const atOnce = 32

// Keys lists the settings below a directory key. An empty key means all settings.
func Keys(ctx context.Context, c *stackconn.Conn, key string) ([]string, error) {
	dir := strings.TrimSuffix(stacknet.SysctlRoot, "/")
	if key != "" {
		var err error
		if dir, err = stacknet.SysctlPath(key); err != nil {
			return nil, err
		}
	}
	return keys(ctx, c, dir, make(chan struct{}, atOnce))
}

// keys lists the settings below dir. room limits the number of directories that are
// listed in parallel.
func keys(ctx context.Context, c *stackconn.Conn, dir string, room chan struct{}) ([]string, error) {
	room <- struct{}{}
	entries, err := c.ReadDir(ctx, dir)
	<-room
	if err != nil {
		return nil, err
	}
	found := make([][]string, len(entries))
	g, ctx := errgroup.WithContext(ctx)
	for n, e := range entries {
		file := dir + "/" + e.Name
		if !e.IsDir() {
			found[n] = []string{stacknet.SysctlKey(file)}
			continue
		}
		g.Go(func() (err error) {
			found[n], err = keys(ctx, c, file, room)
			return err
		})
	}
	err = g.Wait()
	return slices.Concat(found...), err
}

// Match reports whether key matches one of patterns. Without patterns it returns true. A
// pattern without glob characters matches any part of the key.
func Match(key string, patterns []string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, p := range patterns {
		if !strings.ContainsAny(p, "*?[") {
			if strings.Contains(key, p) {
				return true
			}
			continue
		}
		if ok, err := path.Match(p, key); ok && err == nil { // a malformed glob matches nothing
			return true
		}
	}
	return false
}
