package main

import (
	"context"
	"fmt"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/control/controller"
)

// clouds are the adapters that this binary has. What they make in a cloud is
// marked with the cluster's ID.
func clouds(cluster string) map[string]controller.Factory {
	return map[string]controller.Factory{
		"aws": func(ctx context.Context, a *cloudv1alpha1.CloudProviderAccount, secret []byte) (cloud.Account, error) {
			c := a.Spec.AWSConfig
			if c == nil {
				return nil, fmt.Errorf("spec.awsConfig: must be set")
			}
			credentials, err := aws.ParseSecret(secret)
			if err != nil {
				return nil, err
			}
			return aws.NewAccount(ctx, aws.Config{
				Credentials: credentials, Regions: c.Region, Cluster: cluster, Endpoint: c.Endpoint, STSEndpoint: c.STSEndpoint,
			}, aws.Options{})
		},
	}
}
