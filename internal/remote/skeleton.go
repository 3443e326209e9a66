// SPDX-License-Identifier: Apache-2.0

package remote

import "context"

func openADB(_ context.Context, t Target) (Device, error) {
	return nil, broken(t.String(), "not there yet")
}

func openSSH(_ context.Context, t Target) (Device, error) {
	return nil, broken(t.String(), "not there yet")
}

// Prepare looks whether the device can do what is wanted and puts the bundle there
// unless it is there.
func Prepare(_ context.Context, d Device, _ Options) (*Ready, error) {
	return nil, broken(d.Name(), "not there yet")
}
