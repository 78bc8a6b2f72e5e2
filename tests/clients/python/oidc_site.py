"""A real OpenID provider, django-oauth-toolkit: `oidc_site.py FOLDER PUBLIC_URL` prints its address and serves.

It has one client, `headrace-console` with the secret `the-client-s-secret`, and one person, ada, whose password is
`lovelace`, and whose roles are the words of FOLDER/roles.
"""

import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.conf import settings

LOGIN = "<form method=post>{% csrf_token %}{{ form }}<button>Log in</button></form>"

folder, public_url = Path(sys.argv[1]), sys.argv[2]
key = rsa.generate_private_key(65537, 2048)
loaders = [
    ("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN}),
    "django.template.loaders.app_directories.Loader",
]
settings.configure(
    SECRET_KEY="of a provider for tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    LOGIN_URL="/login/",
    USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "provider.sqlite3"}},
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],  # quick
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "oauth2_provider"],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {"loaders": loaders}}],
    OAUTH2_PROVIDER={
        "OIDC_ENABLED": True,
        "OIDC_RSA_PRIVATE_KEY": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
        "OIDC_RP_INITIATED_LOGOUT_ALWAYS_PROMPT": False,
        "OAUTH2_VALIDATOR_CLASS": f"{__name__}.Validator",
        "SCOPES": {"openid": "Who you are"},
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        "ALLOWED_SCHEMES": ["http", "https"],
        "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
    },
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402 - once Django knows its settings
from django.contrib.auth.views import LoginView  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import include, path  # noqa: E402
from oauth2_provider.models import Application  # noqa: E402
from oauth2_provider.oauth2_validators import OAuth2Validator  # noqa: E402

urlpatterns = [
    path("login/", LoginView.as_view()),
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
]


class Validator(OAuth2Validator):
    oidc_claim_scope = None

    def get_additional_claims(self, request):
        roles = (folder / "roles").read_text().split()
        return {"sub": request.user.username, "tenant": "acme", "roles": roles}


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Handler(WSGIRequestHandler):
    def log_message(self, *_):
        pass


call_command("migrate", verbosity=0)
ada = User.objects.create_user("ada", password="lovelace")
Application.objects.create(
    client_id="headrace-console",
    client_secret="the-client-s-secret",
    client_type="confidential",
    authorization_grant_type="authorization-code",
    redirect_uris=f"{public_url}/auth/callback",
    post_logout_redirect_uris=f"{public_url}/",
    algorithm="RS256",
    skip_authorization=True,
)
server = make_server("127.0.0.1", 0, get_wsgi_application(), Server, Handler)
print(f"http://localhost:{server.server_port}/o", flush=True)
server.serve_forever()
