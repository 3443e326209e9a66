// SPDX-License-Identifier: Apache-2.0

// Package sysctl reads and writes many of a stack's settings at once: trees and
// patterns of them, files in the form of sysctl.conf(5), changes that happen
// wholly or not at all. Single ones are internal/stacknet's.
package sysctl

import (
	"context"
	"errors"
	"path"
	"strings"
	"syscall"

	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/stacknet"
)

// Setting is a key, with dots, and its value.
type Setting struct{ Key, Value string }

// Below reads every setting below a key that is a directory, "" for all, which
// keep wants (nil: each). One that cannot be read by its nature is left out, as
// sysctl(8) -a does.
func Below(ctx context.Context, c *stackconn.Conn, key string, keep func(string) bool) ([]Setting, error) {
	keys, err := Keys(ctx, c, key)
	if err != nil {
		return nil, err
	}
	var read []Setting
	for _, k := range keys {
		if keep != nil && !keep(k) {
			continue
		}
		value, err := stacknet.GetSysctl(ctx, c, k)
		var no syscall.Errno
		if errors.As(err, &no) { // EACCES, EIO and others: write-only, or of hardware that is absent
			continue
		}
		if err != nil {
			return nil, err
		}
		read = append(read, Setting{k, value})
	}
	return read, nil
}

// Keys lists the settings below a key that is a directory, "" for all.
func Keys(ctx context.Context, c *stackconn.Conn, key string) ([]string, error) {
	dir := strings.TrimSuffix(stacknet.SysctlRoot, "/")
	if key != "" {
		var err error
		if dir, err = stacknet.SysctlPath(key); err != nil {
			return nil, err
		}
	}
	return keys(ctx, c, dir)
}

func keys(ctx context.Context, c *stackconn.Conn, dir string) ([]string, error) {
	entries, err := c.ReadDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		file := dir + "/" + e.Name
		if !e.IsDir() {
			all = append(all, stacknet.SysctlKey(file))
			continue
		}
		below, err := keys(ctx, c, file)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

// Match says whether key matches one of patterns, or there are none. A pattern
// without glob characters is a part of the key.
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
		if ok, err := path.Match(p, key); ok && err == nil { // one that is no glob matches nothing
			return true
		}
	}
	return false
}
