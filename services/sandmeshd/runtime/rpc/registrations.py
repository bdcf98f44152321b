"""The services of a mesh as a server takes them."""

from __future__ import annotations

from sandmesh.api.audit.v1 import audit_pb2, audit_pb2_grpc
from sandmesh.api.driver.v1 import driver_pb2, driver_pb2_grpc
from sandmesh.api.image.v1 import image_pb2, image_pb2_grpc
from sandmesh.api.quota.v1 import quota_pb2, quota_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.secret.v1 import secret_pb2, secret_pb2_grpc
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.api.template.v1 import template_pb2, template_pb2_grpc
from sandmesh.api.token.v1 import token_pb2, token_pb2_grpc
from sandmeshd.runtime.rpc.server import ServiceRegistration


def sandbox_service(servicer: sandbox_pb2_grpc.SandboxServiceServicer) -> ServiceRegistration:
    """Return the allocator's service."""
    name = sandbox_pb2.DESCRIPTOR.services_by_name["SandboxService"].full_name
    return ServiceRegistration(
        name, lambda server: sandbox_pb2_grpc.add_SandboxServiceServicer_to_server(servicer, server)
    )


def session_service(servicer: session_pb2_grpc.SessionServiceServicer) -> ServiceRegistration:
    """Return the broker's service."""
    name = session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name
    return ServiceRegistration(
        name, lambda server: session_pb2_grpc.add_SessionServiceServicer_to_server(servicer, server)
    )


def driver_service(servicer: driver_pb2_grpc.DriverServiceServicer) -> ServiceRegistration:
    """Return a driver's service."""
    name = driver_pb2.DESCRIPTOR.services_by_name["DriverService"].full_name
    return ServiceRegistration(
        name, lambda server: driver_pb2_grpc.add_DriverServiceServicer_to_server(servicer, server)
    )


def token_service(servicer: token_pb2_grpc.TokenServiceServicer) -> ServiceRegistration:
    """Return the service of tokens."""
    name = token_pb2.DESCRIPTOR.services_by_name["TokenService"].full_name
    return ServiceRegistration(name, lambda server: token_pb2_grpc.add_TokenServiceServicer_to_server(servicer, server))


def audit_service(servicer: audit_pb2_grpc.AuditServiceServicer) -> ServiceRegistration:
    """Return the service of the audit."""
    name = audit_pb2.DESCRIPTOR.services_by_name["AuditService"].full_name
    return ServiceRegistration(name, lambda server: audit_pb2_grpc.add_AuditServiceServicer_to_server(servicer, server))


def quota_service(servicer: quota_pb2_grpc.QuotaServiceServicer) -> ServiceRegistration:
    """Return the service of quotas."""
    name = quota_pb2.DESCRIPTOR.services_by_name["QuotaService"].full_name
    return ServiceRegistration(name, lambda server: quota_pb2_grpc.add_QuotaServiceServicer_to_server(servicer, server))


def secret_service(servicer: secret_pb2_grpc.SecretServiceServicer) -> ServiceRegistration:
    """Return the service of secrets."""
    name = secret_pb2.DESCRIPTOR.services_by_name["SecretService"].full_name
    return ServiceRegistration(
        name, lambda server: secret_pb2_grpc.add_SecretServiceServicer_to_server(servicer, server)
    )


def template_service(servicer: template_pb2_grpc.TemplateServiceServicer) -> ServiceRegistration:
    """Return the service of templates."""
    name = template_pb2.DESCRIPTOR.services_by_name["TemplateService"].full_name
    return ServiceRegistration(
        name, lambda server: template_pb2_grpc.add_TemplateServiceServicer_to_server(servicer, server)
    )


def image_service(servicer: image_pb2_grpc.ImageServiceServicer) -> ServiceRegistration:
    """Return the service of images' builds."""
    name = image_pb2.DESCRIPTOR.services_by_name["ImageService"].full_name
    return ServiceRegistration(name, lambda server: image_pb2_grpc.add_ImageServiceServicer_to_server(servicer, server))
